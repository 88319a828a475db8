package raftgroup

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	sundog "github.com/sundog-kv/sundog"
)

// Group is one replica of a Raft group.
type Group struct {
	cfg      Config
	log      *GroupLog
	snaps    *snapshotStore
	fsm      *fsm
	proposer *proposer
	life     *lifetime
	wg       sync.WaitGroup // the group's goroutines

	current atomic.Pointer[instance]
	// lifecycle is held while the raft instance is made, made anew or ended.
	lifecycle sync.Mutex
	closed    bool // guarded by lifecycle

	// keep wakes the keeper: there may be something to do for it.
	keep     chan struct{}
	remake   atomic.Bool // the raft instance must be made anew
	oversize atomic.Bool // the log has outgrown its bound

	lead leadership
	turn snapshotTurn

	spawning sync.Mutex // guards over
	over     bool       // no goroutine may be started any more
}

// instance is one raft.Raft on the group's stores.
type instance struct {
	raft   *raft.Raft
	wire   *transport
	notify chan bool
	// drain ends the goroutine that reads notify, drained says that it has ended.
	drain   *lifetime
	drained chan struct{}
}

// Open starts the replica on what its store holds: nothing, for one that is to
// be bootstrapped or fed by the group's leader. Kinds: Invalid, Conflict (the
// group is open already), Corrupt (its log or snapshot is damaged), Unavailable.
func Open(cfg Config) (*Group, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, log: cfg.Store.Group(cfg.ID), life: newLifetime(), keep: make(chan struct{}, 1)}
	g.lead.changed = make(chan struct{}, 1)
	if err := g.log.load(); err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.SnapshotDir, fmt.Sprintf("group-%d", cfg.ID))
	if g.snaps, err = openSnapshots(dir, g.log.cover); err != nil {
		return nil, err
	}
	g.snaps.may = g.mayCreate
	g.fsm = &fsm{machine: cfg.Machine, failed: func(error) { g.wakeKeeper() }}
	g.proposer = newProposer(g)
	if err := g.startRaft(); err != nil {
		return nil, err
	}
	g.log.watch(g.grown, g.stalled)
	g.spawn(g.keeper)
	g.spawn(g.tellLeader)
	g.proposer.start()
	g.grown(g.log.Bytes())
	return g, nil
}

// raft returns the present instance.
func (g *Group) raft() *raft.Raft { return g.current.Load().raft }

func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	hb := g.cfg.Timings.Heartbeat
	c.LocalID = raft.ServerID(g.cfg.Self)
	c.HeartbeatTimeout, c.ElectionTimeout = hb, hb
	// Heartbeats share raft's thread with syncs, so the lease is no shorter.
	c.LeaderLeaseTimeout = hb / 2
	// An idle follower learns of commits within twice this; the transport leaves
	// out what tells it nothing (see pipeline).
	c.CommitTimeout = max(time.Millisecond, min(maxCommitTimeout, hb/20))
	c.MaxAppendEntries = maxAppendEntries
	// The group closes itself; a replica that was removed idles and says so.
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	// Snapshots start by bytes (see keeper), never by raft's own count.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 365 * 24 * time.Hour
	c.TrailingLogs = 1
	c.Logger = newRaftLogger(g.cfg.Logger.With("group", g.cfg.ID.String()), g.life)
	return c
}

// startRaft makes a raft instance on the group's stores. lifecycle is held, or
// nobody else knows the group yet.
func (g *Group) startRaft() error {
	wire, err := g.cfg.Mux.newTransport(g.cfg.ID, g.cfg.Self)
	if err != nil {
		return err
	}
	// raft sends heartbeats every 1/10 to 1/5 of the timeout; waiting another 1/20
	// at most leaves them far inside the lease of 1/2.
	wire.hold = g.cfg.Timings.Heartbeat / 20
	wire.muted = g.cfg.Store.Sick
	wire.admit = g.admitInstall
	wire.installed = g.installed
	// It must be on the wire first: a group that is open already stops here.
	if err := wire.open(); err != nil {
		return err
	}
	in := &instance{wire: wire, notify: make(chan bool, 16), drain: newLifetime(), drained: make(chan struct{})}
	conf := g.raftConfig()
	conf.NotifyCh = in.notify
	if err := repair(g.log, g.snaps); err != nil {
		_ = wire.Close()
		return err
	}
	in.raft, err = raft.NewRaft(conf, g.fsm, g.log, g.log, g.snaps, wire)
	if err != nil {
		_ = wire.Close()
		kind := sundog.KindOf(err)
		if failed := g.fsm.err(); failed != nil {
			kind, err = sundog.KindOf(failed), failed
		}
		return sundog.Errorf(kind, "%s: %w", g.cfg.ID, err)
	}
	g.current.Store(in)
	if !g.spawn(func() { g.drainNotify(in) }) {
		close(in.drained)
		g.endRaft(in)
		return sundog.Errorf(sundog.Closed, "%s is closed", g.cfg.ID)
	}
	return nil
}

// spawn runs f as a goroutine that Close waits for; false once it does.
func (g *Group) spawn(f func()) bool {
	g.spawning.Lock()
	defer g.spawning.Unlock()
	if !g.over {
		g.wg.Go(f)
	}
	return !g.over
}

// endRaft stops an instance and waits for its goroutines. Its transport goes
// first: raft's own goroutines wait for it.
func (g *Group) endRaft(in *instance) {
	_ = in.wire.Close()
	if err := in.raft.Shutdown().Error(); err != nil {
		g.cfg.Logger.Warn("raft did not shut down", "group", g.cfg.ID.String(), "error", err)
	}
	in.drain.close()
	<-in.drained
}

// installed follows each installation, before its sender is answered. raft keeps
// the last index and term of the log it had before in memory, though that log is
// gone. Where that index is not below the snapshot, raft would take it for its
// newest entry: it would judge votes by it, refuse the leader's entries and be
// sent snapshots for ever (hashicorp/raft issue 697). An instance made anew reads
// the truth.
func (g *Group) installed(lastIndex uint64) {
	if m := g.cfg.Metrics; m != nil {
		m.installs.Inc()
	}
	believed, err := strconv.ParseUint(g.raft().Stats()["last_log_index"], 10, 64)
	stored, _ := g.log.extent() // read at open already
	if err == nil && (believed < lastIndex || stored.first != 0) {
		return
	}
	g.remakeOrFail()
}

// remakeOrFail makes the raft instance anew; a replica that has none stops.
func (g *Group) remakeOrFail() {
	err := g.remakeRaft(nil)
	if err != nil && sundog.KindOf(err) != sundog.Closed {
		_ = g.fsm.fail(err)
	}
}

// stalled follows a StoreLogs that gave up on a hung disk: what raft holds in
// memory may no longer be what the log will have.
func (g *Group) stalled() {
	g.remake.Store(true)
	g.wakeKeeper()
}

// grown follows each append.
func (g *Group) grown(bytes int64) {
	if bytes >= g.cfg.SnapshotBytes+g.cfg.TrailingBytes && g.oversize.CompareAndSwap(false, true) {
		g.wakeKeeper()
	}
}

func (g *Group) wakeKeeper() {
	select {
	case g.keep <- struct{}{}:
	default:
	}
}

// Close stops the replica and waits for all of its goroutines. Entries under way
// get a moment to end; what is still open then is answered Unknown. It must not
// be called from the machine or from a callback of the group.
func (g *Group) Close() error {
	g.proposer.stop()
	select {
	case <-g.proposer.ended:
	case <-time.After(2 * g.cfg.Timings.Heartbeat):
	}
	g.lifecycle.Lock()
	if !g.closed {
		g.closed = true
		g.log.watch(nil, nil)
		g.endRaft(g.current.Load())
		g.proposer.abandon()
		g.life.close()
	}
	g.lifecycle.Unlock()
	g.spawning.Lock()
	g.over = true
	g.spawning.Unlock()
	g.wg.Wait()
	select {
	case <-g.proposer.ended:
	case <-time.After(time.Second):
		// raft never answers an entry that it had committed and not yet handed to
		// the machine when it ended; the goroutine that waits for it is lost.
	}
	return nil
}

// Status tells what this replica knows of the group now.
func (g *Group) Status() Status {
	r := g.raft()
	_, leader := r.LeaderWithID()
	state := r.State()
	st := Status{
		ID: g.cfg.ID, Self: g.cfg.Self, Leader: nodeOf(string(leader)), Term: r.CurrentTerm(),
		Leading: state == raft.Leader, Applied: g.applied(r), Commit: r.CommitIndex(), LastIndex: r.LastIndex(),
		ConfigIndex: g.fsm.config.Load(), Failure: g.fsm.err(), LastContact: -1,
	}
	switch {
	case st.Failure != nil:
		st.State, st.Leading = "failed", false
	case state == raft.Follower:
		st.State = "follower"
	case state == raft.Candidate:
		st.State = "candidate"
	case state == raft.Leader:
		st.State = "leader"
	default:
		st.State = "shutdown"
	}
	// After a restart raft's commit index starts at 0 though what the snapshot
	// covers is committed.
	st.Commit = max(st.Commit, st.Applied)
	if heard := r.LastContact(); st.Leading {
		st.LastContact = 0
	} else if !heard.IsZero() {
		st.LastContact = time.Since(heard)
	}
	st.Members, st.Learners = split(r.GetConfiguration().Configuration())
	return st
}

// applied is the highest index whose effect, and that of all before it, is in
// the machine. raft does not hand its no-ops to it.
func (g *Group) applied(r *raft.Raft) uint64 {
	done := g.fsm.applied.Load()
	var l raft.Log
	for sent := r.AppliedIndex(); done < sent; done++ {
		if err := g.log.GetLog(done+1, &l); err != nil || l.Type != raft.LogNoop {
			break
		}
	}
	return done
}
