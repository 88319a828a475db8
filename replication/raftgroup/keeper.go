package raftgroup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// keeperPause is the time between attempts that cannot succeed yet.
const keeperPause = 500 * time.Millisecond

// keeper looks after the replica: it ends a failed one, makes raft anew where
// its memory and its log disagree, and takes snapshots when the log has grown.
func (g *Group) keeper() {
	for {
		select {
		case <-g.keep:
		case <-g.life.Done():
			return
		}
		for g.tend() {
			select {
			case <-time.After(keeperPause):
			case <-g.life.Done():
				return
			}
		}
	}
}

// tend does what there is to do; again tells that something must be retried.
func (g *Group) tend() (again bool) {
	if err := g.fsm.err(); err != nil {
		if !g.gaveUp {
			g.gaveUp = true
			g.giveUp(err)
		}
		return false
	}
	if g.remake.Load() {
		if g.cfg.Store.Sick() {
			return true
		}
		g.remake.Store(false)
		if err := g.remakeRaft(nil); err != nil {
			g.cfg.Logger.Warn("raft not made anew", "group", g.cfg.ID.String(), "error", err)
			return true // or it has failed for good, and is given up next
		}
	}
	if g.oversize.Load() {
		if err := g.takeSnapshot(g.life); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			g.cfg.Logger.Warn("raft snapshot not taken", "group", g.cfg.ID.String(), "error", err)
			return true
		}
		g.oversize.Store(false)
		g.grown(g.log.Bytes())
	}
	return false
}

// Snapshot takes a snapshot now and cuts the log. Nothing happens when nothing
// was applied yet. Kinds: Timeout when ctx ends first (it may still be taken),
// Unavailable.
func (g *Group) Snapshot(ctx context.Context) error {
	done := make(chan error, 1)
	if !g.spawn(func() { done <- g.takeSnapshot(ctx) }) {
		return sundog.Errorf(sundog.Unavailable, "%s is closed", g.cfg.ID)
	}
	select {
	case err := <-done:
		if errors.Is(err, raft.ErrNothingNewToSnapshot) {
			err = nil
		}
		return err
	case <-ctx.Done():
		return sundog.Errorf(sundog.Timeout, "%s: snapshot: %w", g.cfg.ID, ctx.Err())
	}
}

// takeSnapshot takes its turn among the groups of the node: few at a time.
func (g *Group) takeSnapshot(ctx context.Context) error {
	select {
	case g.cfg.Store.snapshots <- struct{}{}:
	case <-ctx.Done():
		return sundog.Errorf(sundog.Timeout, "%s: snapshot: %w", g.cfg.ID, ctx.Err())
	case <-g.life.Done():
		return sundog.Errorf(sundog.Unavailable, "%s is closing", g.cfg.ID)
	}
	defer func() { <-g.cfg.Store.snapshots }()
	if !g.turn.take(turnOwn) {
		return sundog.Errorf(sundog.Unavailable, "%s: a snapshot is taken or installed already", g.cfg.ID)
	}
	defer g.turn.give()
	r := g.raft()
	conf := r.ReloadableConfig()
	conf.TrailingLogs = g.log.trailing(g.cfg.TrailingBytes)
	if err := r.ReloadConfig(conf); err != nil {
		return sundog.Errorf(sundog.Internal, "%s: %w", g.cfg.ID, err)
	}
	if err := r.Snapshot().Error(); err != nil {
		return sundog.Errorf(sundog.Unavailable, "%s: snapshot: %w", g.cfg.ID, err)
	}
	if m := g.cfg.Metrics; m != nil {
		m.snapshots.Inc()
	}
	return nil
}

// leadership is what the group was last told of its leading.
type leadership struct {
	changed chan struct{} // one token

	mu      sync.Mutex // guards what follows
	leading bool
	term    uint64
}

// drainNotify takes raft's notices as they come: raft waits for that.
func (g *Group) drainNotify(in *instance) {
	defer close(in.drained)
	for {
		select {
		case leading := <-in.notify:
			g.noteLeading(in, leading)
		case <-in.drain.Done():
			g.noteLeading(in, false)
			return
		}
	}
}

func (g *Group) noteLeading(in *instance, leading bool) {
	term := in.raft.CurrentTerm()
	g.lead.mu.Lock()
	g.lead.leading, g.lead.term = leading, term
	g.lead.mu.Unlock()
	select {
	case g.lead.changed <- struct{}{}:
	default:
	}
	if leading {
		// raft's own no-op commits what earlier leaders left, but never reaches the
		// machine; an entry of ours does, right behind it.
		g.waiting.rouse()
	}
}

// tellLeader runs the OnLeader callback.
func (g *Group) tellLeader() {
	var told leadership
	for {
		select {
		case <-g.lead.changed:
		case <-g.life.Done():
			return
		}
		g.lead.mu.Lock()
		leading, term := g.lead.leading, g.lead.term
		g.lead.mu.Unlock()
		if leading == told.leading && (!leading || term == told.term) {
			continue
		}
		told.leading, told.term = leading, term
		if g.cfg.OnLeader != nil {
			g.cfg.OnLeader(leading, term)
		}
	}
}
