package raftgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"go.etcd.io/bbolt"
)

// bootstrapKey holds the list a group was bootstrapped with, among its stable
// state. raft's own key for the term is read beside it.
const (
	bootstrapKey   = "sundog/bootstrap"
	currentTermKey = "CurrentTerm"
)

// Bootstrap gives an empty group its first voters, this replica among them; the
// same list must be given wherever it is called. Calling it again with that list
// does nothing, and neither does a call after the group has reached this replica
// by its leader. Kinds: Invalid, Conflict for another list.
func (g *Group) Bootstrap(servers []string) error {
	servers = slices.Sorted(slices.Values(servers))
	for _, s := range servers {
		if _, err := ring.ParseServerID(s); err != nil {
			return err
		}
	}
	if len(slices.Compact(slices.Clone(servers))) != len(servers) || !slices.Contains(servers, g.cfg.Self) {
		return sundog.Errorf(sundog.Invalid, "%s: first members %v must be different and hold %s", g.cfg.ID, servers, g.cfg.Self)
	}
	list := strings.Join(servers, " ")
	if born, err := g.bornWith(list); born || err != nil {
		return err
	}
	// raft's BootstrapCluster writes its term and its first entry one after the
	// other; a crash between them would leave a replica that can neither start
	// nor be bootstrapped. Here both are one transaction.
	return g.remakeRaft(func() error {
		if born, err := g.bornWith(list); born || err != nil {
			return err
		}
		return g.log.bootstrap(newConfiguration(servers), list)
	})
}

// bornWith reports whether the replica has any state; Conflict when it was
// bootstrapped with another list.
func (g *Group) bornWith(list string) (bool, error) {
	was, err := g.log.Get([]byte(bootstrapKey))
	if err != nil {
		return false, err
	}
	if was != nil && string(was) != list {
		return false, sundog.Errorf(sundog.Conflict, "%s was bootstrapped with %s", g.cfg.ID, was)
	}
	has, err := raft.HasExistingState(g.log, g.log, g.snaps)
	return has, err
}

// bootstrap writes term 1 and the first configuration at index 1, at once.
func (g *GroupLog) bootstrap(c raft.Configuration, list string) error {
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c), AppendedAt: time.Now()}
	op, err := g.appendOp([]*raft.Log{entry})
	if err != nil {
		return err
	}
	term := binary.BigEndian.AppendUint64(nil, 1)
	appendEntry, published := op.apply, op.published
	op.apply = func(tx *bbolt.Tx) (bool, error) {
		if err := putStable(tx, g.id, []byte(currentTermKey), term); err != nil {
			return false, err
		}
		if err := putStable(tx, g.id, []byte(bootstrapKey), []byte(list)); err != nil {
			return false, err
		}
		return appendEntry(tx)
	}
	op.published = func() {
		published()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stable[currentTermKey], g.stable[bootstrapKey] = term, []byte(list)
	}
	g.store.submit(op)
	return g.await(op)
}

// AddVoter makes server a voter, whether it is a learner or not a member yet.
// prevIndex, unless 0, is the index of the configuration (Status.ConfigIndex)
// that the change was decided upon. Nothing is done when server is a voter.
//
// Kinds of this and the next two: Invalid, Conflict (the configuration is
// another), NotOwner, Unavailable and Timeout: not changed; Unknown: proposed.
func (g *Group) AddVoter(ctx context.Context, server string, prevIndex uint64) error {
	return g.change(ctx, server, prevIndex, func(r *raft.Raft, wait time.Duration) raft.IndexFuture {
		return r.AddVoter(raft.ServerID(server), raft.ServerAddress(server), prevIndex, wait)
	}, func(voter, learner bool) bool { return voter })
}

// AddNonvoter makes server a learner: it gets the log and has no vote. Conflict
// when it is a voter.
func (g *Group) AddNonvoter(ctx context.Context, server string, prevIndex uint64) error {
	if voters, _ := split(g.raft().GetConfiguration().Configuration()); slices.Contains(voters, server) {
		return sundog.Errorf(sundog.Conflict, "%s: %s is a voter", g.cfg.ID, server)
	}
	return g.change(ctx, server, prevIndex, func(r *raft.Raft, wait time.Duration) raft.IndexFuture {
		return r.AddNonvoter(raft.ServerID(server), raft.ServerAddress(server), prevIndex, wait)
	}, func(voter, learner bool) bool { return learner })
}

// RemoveServer takes server out of the group, which then ignores it; nothing is
// done when it is no member. The last voter cannot be removed (Conflict).
func (g *Group) RemoveServer(ctx context.Context, server string, prevIndex uint64) error {
	return g.change(ctx, server, prevIndex, func(r *raft.Raft, wait time.Duration) raft.IndexFuture {
		return r.RemoveServer(raft.ServerID(server), prevIndex, wait)
	}, func(voter, learner bool) bool { return !voter && !learner })
}

// change carries out one membership change. raft allows one at a time, and only
// after this leader has committed an entry of its own; so a change waits, within
// the context's time.
func (g *Group) change(ctx context.Context, server string, prevIndex uint64, begin func(*raft.Raft, time.Duration) raft.IndexFuture, already func(voter, learner bool) bool) error {
	if _, err := ring.ParseServerID(server); err != nil {
		return err
	}
	// With the barrier applied, what is read below is committed.
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	if at := g.fsm.config.Load(); prevIndex != 0 && at != prevIndex {
		return sundog.Errorf(sundog.Conflict, "%s: the configuration is that of %d, not of %d", g.cfg.ID, at, prevIndex)
	}
	r := g.raft()
	voters, learners := split(r.GetConfiguration().Configuration())
	if already(slices.Contains(voters, server), slices.Contains(learners, server)) {
		return nil
	}
	wait := g.cfg.Timings.Heartbeat
	if d, ok := ctx.Deadline(); ok {
		wait = max(time.Until(d), time.Millisecond)
	}
	done := make(chan error, 1)
	if !g.spawn(func() { done <- begin(r, wait).Error() }) {
		return sundog.Errorf(sundog.Unavailable, "%s is closed", g.cfg.ID)
	}
	select {
	case err := <-done:
		return g.changeOutcome(err)
	case <-ctx.Done():
		return sundog.Errorf(sundog.Unknown, "%s: change of %s: %w", g.cfg.ID, server, ctx.Err())
	case <-g.life.Done():
		return sundog.Errorf(sundog.Unknown, "%s: change of %s: closed meanwhile", g.cfg.ID, server)
	}
}

func (g *Group) changeOutcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return g.outcomeOf(err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return g.outcomeOf(err)
	case strings.Contains(err.Error(), "configuration changed since"), strings.Contains(err.Error(), "need at least one voter"):
		// raft judges these before it appends, and has no error values for them.
		return sundog.Errorf(sundog.Conflict, "%s: %w", g.cfg.ID, err)
	}
	return g.outcomeOf(err)
}
