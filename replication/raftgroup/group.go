package raftgroup

import (
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// Group is one replica of a Raft group.
type Group struct {
	cfg     Config
	log     *GroupLog
	snaps   *snapshotStore
	fsm     *fsm
	waiting *proposals
	life    *lifetime
	wg      sync.WaitGroup // the group's goroutines

	current atomic.Pointer[instance]
	// lifecycle is held while the raft instance is made, made anew or ended.
	lifecycle sync.Mutex
	closed    bool // guarded by lifecycle

	// keep wakes the keeper: there may be something to do for it.
	keep     chan struct{}
	remake   atomic.Bool // the raft instance must be made anew
	oversize atomic.Bool // the log has outgrown its bound
	gaveUp   bool        // the keeper's: the group has stopped for good

	lead leadership
	turn snapshotTurn

	spawning sync.Mutex // guards over
	over     bool       // no goroutine may be started any more
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
	g.waiting = newProposals(&g.cfg)
	if err := g.startRaft(); err != nil {
		return nil, err
	}
	g.log.watch(g.grown, g.stalled)
	g.spawn(g.keeper)
	g.spawn(g.tellLeader)
	g.grown(g.log.Bytes())
	return g, nil
}

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

// spawn runs f as a goroutine that Close waits for; false once it does.
func (g *Group) spawn(f func()) bool {
	g.spawning.Lock()
	defer g.spawning.Unlock()
	if !g.over {
		g.wg.Go(f)
	}
	return !g.over
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
// be called from the machine or from a callback of the group. Unavailable: the
// log disk is hung (see Store.Close), and goroutines that wait for it are left.
func (g *Group) Close() error {
	g.waiting.stop()
	select {
	case <-g.current.Load().proposer.calm():
	case <-time.After(2 * g.cfg.Timings.Heartbeat):
	}
	g.lifecycle.Lock()
	var err error
	if !g.closed {
		g.closed = true
		g.log.watch(nil, nil)
		err = g.endRaft(g.current.Load())
		g.life.close()
	}
	g.lifecycle.Unlock()
	g.spawning.Lock()
	g.over = true
	g.spawning.Unlock()
	joined := make(chan struct{})
	go func() { g.wg.Wait(); close(joined) }()
	if !g.cfg.Store.await(joined) && err == nil {
		err = sundog.Errorf(sundog.Unavailable, "%s: the log disk does not answer", g.cfg.ID)
	}
	return err
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
