package raftgroup

import (
	"errors"
	"strconv"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// instance is one raft.Raft on the group's stores. A group has one at a time;
// lifecycle is held while it is made, made anew or ended.
type instance struct {
	raft     *raft.Raft
	wire     *transport
	proposer *proposer
	notify   chan bool
	// drain ends the goroutine that reads notify, drained says that it has ended.
	drain   *lifetime
	drained chan struct{}
	// ending is closed when raft was told to end, ended when it has.
	ending *lifetime
	ended  chan struct{}
}

// raft returns the present instance.
func (g *Group) raft() *raft.Raft { return g.current.Load().raft }

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
	in := &instance{
		wire: wire, notify: make(chan bool, 16), drain: newLifetime(), drained: make(chan struct{}),
		ending: newLifetime(), ended: make(chan struct{}),
	}
	if err := repair(g.log, g.snaps); err != nil {
		_ = wire.Close()
		return err
	}
	conf := g.raftConfig()
	conf.NotifyCh = in.notify
	in.raft, err = raft.NewRaft(conf, g.fsm, g.log, g.log, g.snaps, wire)
	if err != nil {
		_ = wire.Close()
		kind := sundog.KindOf(err)
		if failed := g.fsm.err(); failed != nil {
			kind, err = sundog.KindOf(failed), failed
		}
		return sundog.Errorf(kind, "%s: %w", g.cfg.ID, err)
	}
	in.proposer = startProposer(g, in.raft)
	g.current.Store(in)
	if !g.spawn(func() { g.drainNotify(in) }) {
		close(in.drained)
		return errors.Join(sundog.Errorf(sundog.Closed, "%s is closed", g.cfg.ID), g.endRaft(in))
	}
	return nil
}

// endRaft stops an instance and waits for its goroutines; again it only waits.
// Its transport goes first: raft's own goroutines wait for it. Kind Unavailable:
// raft has not ended, since it waits for a hung disk; it does nothing any more
// but what it waits for.
func (g *Group) endRaft(in *instance) error {
	_ = in.wire.Close()
	if in.ending.close() {
		shutdown := in.raft.Shutdown()
		go func() {
			defer close(in.ended)
			if err := shutdown.Error(); err != nil {
				g.cfg.Logger.Warn("raft did not shut down", "group", g.cfg.ID.String(), "error", err)
			}
		}()
	}
	ended := g.cfg.Store.await(in.ended)
	in.drain.close()
	<-in.drained
	in.proposer.end()
	if !ended {
		return sundog.Errorf(sundog.Unavailable, "%s: raft has not ended: the log disk does not answer", g.cfg.ID)
	}
	return nil
}

// remakeRaft ends the raft instance and makes another one on the same stores.
// between, if given, runs while there is none. Nothing on disk is lost: it is
// what a restart of the process would do. A replica that then has no instance
// stops for good, except on a hung disk: the keeper tries again.
func (g *Group) remakeRaft(between func() error) error {
	g.lifecycle.Lock()
	defer g.lifecycle.Unlock()
	if g.closed {
		return sundog.Errorf(sundog.Closed, "%s is closed", g.cfg.ID)
	}
	if err := g.endRaft(g.current.Load()); err != nil {
		g.stalled()
		return err
	}
	var err error
	if between != nil {
		err = between()
	} else if m := g.cfg.Metrics; m != nil {
		m.recreated.Inc()
	}
	if failed := g.startRaft(); failed != nil {
		err = errors.Join(err, failed)
		if sundog.KindOf(failed) != sundog.Closed {
			_ = g.fsm.fail(failed)
		}
	}
	return err
}

// giveUp ends a replica whose machine can go on no more.
func (g *Group) giveUp(err error) {
	g.cfg.Logger.Error("raft group stopped on this node", "group", g.cfg.ID.String(), "error", err)
	g.lifecycle.Lock()
	g.waiting.stop()
	if !g.closed {
		_ = g.endRaft(g.current.Load()) // it ends when the disk answers
	}
	g.lifecycle.Unlock()
	if g.cfg.OnFailure != nil {
		g.cfg.OnFailure(err)
	}
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
	if err := g.remakeRaft(nil); err != nil {
		g.cfg.Logger.Warn("raft not made anew", "group", g.cfg.ID.String(), "error", err)
	}
}

// stalled follows an operation of the log that gave up on a hung disk: what raft
// holds in memory may no longer be what the log will have.
func (g *Group) stalled() {
	g.remake.Store(true)
	g.wakeKeeper()
}
