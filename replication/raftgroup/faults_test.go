package raftgroup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// TestDivergenceAtSnapshotIndex: a cut-off leader keeps uncommitted entries that
// begin right behind the index at which the others then take their snapshot, or
// lie on both sides of it. It must catch up after the heal, without an endless
// installation (hashicorp/raft issue 697).
func TestDivergenceAtSnapshotIndex(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, func(cfg *Config) { cfg.SnapshotBytes, cfg.TrailingBytes = 1<<40, 1 })
	c.startAll()
	for round := range 4 {
		old := c.leader(0)
		c.propose(0, fmt.Sprintf("base-%d", round))
		c.converge(0)
		if round%2 == 0 { // the tail will begin right behind its own snapshot too
			require.NoError(t, old.groups[0].Snapshot(t.Context()))
		}
		c.net.isolate(old.id, hard)
		// Uncommitted entries on the cut-off leader, while it takes itself for one.
		for i := range 8 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := old.groups[0].Propose(ctx, []byte(fmt.Sprintf("tail-%d-%d", round, i)))
			cancel()
			require.Error(t, err)
		}
		tail := old.groups[0].Status().LastIndex
		eventually(t, "the old leader gives up", func() bool { return !old.groups[0].Status().Leading })
		old.up = false // not to be asked for a leader
		fresh := c.leader(0)
		for i := 0; fresh.groups[0].Status().Applied+2 < tail; i++ {
			c.propose(0, fmt.Sprintf("fresh-%d-%d", round, i))
		}
		for _, n := range c.nodes {
			if n != old {
				require.NoError(t, n.groups[0].Snapshot(t.Context()))
			}
		}
		old.up = true
		c.net.isolate(old.id, whole)
		c.propose(0, fmt.Sprintf("end-%d", round))
		c.converge(0)
	}
	for _, n := range c.nodes {
		st := n.groups[0].Status()
		t.Logf("node %d: last %d, restored %d times", n.id, st.LastIndex, n.ledgers[0].restores)
		require.LessOrEqual(t, n.ledgers[0].restores, 3*4, "no loop of installations")
	}
}

// TestHungDisk: the log disk of a leader stops answering (hashicorp/raft issue
// 503). It stops leading, another one takes over, and it comes back when the
// disk answers again.
func TestHungDisk(t *testing.T) {
	t.Parallel()
	var hung [4]atomic.Pointer[chan struct{}]
	c := newCluster(t, 3, 2, nil)
	c.store.StallAfter = 400 * time.Millisecond
	c.hooks = func(id sundog.NodeID) storeHooks {
		return storeHooks{beforeCommit: func() {
			if wait := hung[id].Load(); wait != nil {
				<-*wait
			}
		}}
	}
	c.startAll()
	c.propose(0, "before")
	old := c.leader(0)
	gate := make(chan struct{})
	hung[old.id].Store(&gate)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	_, err := old.groups[0].Propose(ctx, []byte("hung"))
	cancel()
	require.ErrorIs(t, err, sundog.Unknown)
	old.up = false // its followers elect another one
	c.propose(0, "during")
	c.propose(1, "during")
	t.Logf("writes go on %s after the disk hung", time.Since(start))
	require.True(t, old.store.Sick())
	hung[old.id].Store(nil)
	close(gate)
	old.up = true
	eventually(t, "well again", func() bool { return !old.store.Sick() })
	c.propose(0, "after")
	c.propose(1, "after")
	c.converge(0)
	c.converge(1)
	for _, n := range c.nodes {
		require.LessOrEqual(t, n.ledgers[0].count("hung"), 1)
	}
}

// TestCloseOnHungDisk: what closes a node ends in bounded time though the disk
// has stopped answering while raft stores its term, which it does not give up.
func TestCloseOnHungDisk(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var hung atomic.Bool
	c := newCluster(t, 3, 1, nil) // node 1 campaigns in vain, and stores terms
	c.store.StallAfter = 200 * time.Millisecond
	c.hooks = func(sundog.NodeID) storeHooks {
		return storeHooks{beforeCommit: func() {
			if hung.Load() {
				<-gate
			}
		}}
	}
	n := c.start(1)
	g := n.groups[0]
	require.NoError(t, g.Bootstrap(c.members()))
	hung.Store(true)
	term := make(chan error, 1)
	go func() { term <- g.log.SetUint64([]byte("term"), 9) }()
	eventually(t, "the disk hangs", func() bool { return n.store.Sick() })
	n.up = false
	c.net.remove(1)
	start := time.Now()
	require.NoError(t, n.mux.Close())
	_ = g.Close() // Unavailable when raft itself waits for the disk
	require.ErrorIs(t, n.store.Close(), sundog.Unavailable)
	require.Less(t, time.Since(start), 4*closeGrace)
	select {
	case err := <-term:
		t.Fatalf("a term was given up: %v", err)
	default:
	}
	require.NotPanics(t, func() { close(gate) })
	require.NoError(t, <-term)
	require.NoError(t, n.store.Close(), "the disk answers again")
}

// TestMachineGivesUp: a machine that cannot apply an entry stops its replica
// and nobody else's.
func TestMachineGivesUp(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 3)
	c := newCluster(t, 3, 1, func(cfg *Config) { cfg.OnFailure = func(err error) { failed <- err } })
	c.startAll()
	c.propose(0, "good")
	n := c.follower(0)
	n.ledgers[0].mu.Lock()
	n.ledgers[0].refuse = true
	n.ledgers[0].mu.Unlock()
	c.propose(0, "bad")
	require.ErrorIs(t, <-failed, sundog.Internal)
	eventually(t, "failed", func() bool { return n.groups[0].Status().State == "failed" })
	st := n.groups[0].Status()
	require.Error(t, st.Failure)
	require.False(t, st.Leading)
	_, err := n.groups[0].Propose(t.Context(), []byte("x"))
	require.ErrorIs(t, err, sundog.Unavailable)
	c.propose(0, "more") // the others go on

	// On a leader the proposal's outcome is Unknown: it is committed.
	leader := c.leader(0)
	leader.ledgers[0].mu.Lock()
	leader.ledgers[0].refuse = true
	leader.ledgers[0].mu.Unlock()
	_, err = leader.groups[0].Propose(t.Context(), []byte("worse"))
	require.ErrorIs(t, err, sundog.Unknown)
	require.Error(t, <-failed)

	// A restart applies it again, on a machine that can.
	c.stop(n.id)
	c.stop(leader.id)
	c.start(n.id)
	c.start(leader.id)
	c.propose(0, "end")
	c.converge(0)
	require.Equal(t, 1, n.ledgers[0].count("bad"))
	require.Equal(t, 1, n.ledgers[0].count("worse"))
}

func TestMembership(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, 1, steady)
	for id := range c.nodes {
		c.start(id)
	}
	first := []string{serverID(1, 1), serverID(2, 1), serverID(3, 1)}
	for id := sundog.NodeID(1); id <= 3; id++ {
		require.NoError(t, c.nodes[id].groups[0].Bootstrap(first))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fourth := serverID(4, 1)
	g := c.leader(0).groups[0]
	require.ErrorIs(t, g.AddVoter(ctx, "nonsense", 0), sundog.Invalid)
	require.NoError(t, g.AddNonvoter(ctx, fourth, g.Status().ConfigIndex))
	require.ErrorIs(t, g.AddNonvoter(ctx, fourth, 1), sundog.Conflict, "decided upon an older configuration")
	require.NoError(t, g.AddNonvoter(ctx, fourth, 0), "there already")
	require.ErrorIs(t, g.AddNonvoter(ctx, first[0], 0), sundog.Conflict)
	require.Equal(t, []string{fourth}, g.Status().Learners)
	c.propose(0, "to all four")
	c.converge(0)
	require.NoError(t, g.AddVoter(ctx, fourth, g.Status().ConfigIndex))
	require.Len(t, g.Status().Members, 4)
	before := g.Status().ConfigIndex
	require.NoError(t, g.RemoveServer(ctx, fourth, before))
	require.NoError(t, g.RemoveServer(ctx, fourth, 0), "removed twice")
	eventually(t, "known to all", func() bool { return g.Status().ConfigIndex > before })
	require.ErrorIs(t, c.follower(0).groups[0].RemoveServer(ctx, first[0], 0), sundog.NotOwner)

	// The removed one idles: it campaigns in vain and disturbs nobody.
	term := g.Status().Term
	removed := c.nodes[4].groups[0]
	time.Sleep(3 * time.Second)
	require.Equal(t, term, g.Status().Term)
	require.False(t, removed.Status().Leading)

	// Down to one voter, which cannot be removed. The leader itself may be.
	c.nodes[4].up = false
	for len(g.Status().Members) > 1 {
		members := g.Status().Members
		victim := members[0]
		require.NoError(t, g.RemoveServer(ctx, victim, 0))
		c.nodes[nodeOf(victim)].up = false
		g = c.leader(0).groups[0]
		eventually(t, "the configuration", func() bool { return len(g.Status().Members) == len(members)-1 })
	}
	require.ErrorIs(t, g.RemoveServer(ctx, g.cfg.Self, 0), sundog.Conflict)
	c.propose(0, "alone")
	for _, n := range c.nodes {
		n.up = true // for the clean-up
	}
}

// TestDamagedSnapshot: a replica whose snapshot is damaged does not start, and
// says so; what a dead process left half written does not matter.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1, nil)
	c.startAll()
	for i := range 50 {
		c.propose(0, command(i))
	}
	n := c.nodes[1]
	require.NoError(t, n.groups[0].Snapshot(t.Context()))
	dir := n.groups[0].snaps.dir
	c.stop(1)
	files, err := filepath.Glob(filepath.Join(dir, "*"+snapSuffix))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, writeFile(filepath.Join(dir, "x"+tempSuffix), []byte("half")))
	c.start(1)
	require.Equal(t, 1, n.ledgers[0].count(command(0)))
	require.NoFileExists(t, filepath.Join(dir, "x"+tempSuffix))
	c.stop(1)

	whole, err := os.ReadFile(files[0])
	require.NoError(t, err)
	s, err := OpenStore(filepath.Join(n.dir, "raft.db"), StoreConfig{})
	require.NoError(t, err)
	defer s.Close()
	n.store, n.mux = s, c.net.add(t, 1, MuxConfig{})
	defer n.mux.Close()
	for name, b := range map[string][]byte{
		"header": append([]byte("x"), whole[1:]...),
		"body":   append(append([]byte(nil), whole[:len(whole)-1]...), whole[len(whole)-1]^1),
		"short":  whole[:len(whole)-10],
	} {
		require.NoError(t, os.WriteFile(files[0], b, 0o600))
		_, err := Open(c.config(n, 0, newLedger()))
		require.ErrorIs(t, err, sundog.Corrupt, name)
	}
	require.NoError(t, os.WriteFile(files[0], whole, 0o600))
	g, err := Open(c.config(n, 0, newLedger()))
	require.NoError(t, err)
	require.NoError(t, g.Close())
}

// TestSnapshotsByBytes: the log of every replica stays within its bound.
func TestSnapshotsByBytes(t *testing.T) {
	t.Parallel()
	const limit, trailing = 64 << 10, 16 << 10
	c := newCluster(t, 3, 1, func(cfg *Config) {
		steady(cfg)
		cfg.SnapshotBytes, cfg.TrailingBytes = limit, trailing
	})
	c.startAll()
	leader := c.leader(0)
	for i := range 200 {
		_, err := leader.groups[0].Propose(t.Context(), fmt.Appendf(nil, "%02000d", i%40))
		require.NoError(t, err)
	}
	for _, n := range c.nodes {
		eventually(t, "cut", func() bool { return n.groups[0].log.Bytes() < limit+trailing })
		first, err := n.groups[0].log.FirstIndex()
		require.NoError(t, err)
		require.Greater(t, first, uint64(1))
	}
	c.converge(0)
}

// slowLedger stops in Apply at the command "slow" until its gate opens.
type slowLedger struct {
	*ledger
	entered, gate chan struct{}
}

func (l *slowLedger) Apply(e Entry) []any {
	for _, c := range e.Commands {
		if string(c) == "slow" {
			close(l.entered)
			<-l.gate
		}
	}
	return l.ledger.Apply(e)
}

// TestRemakeForgetsFutures: raft never answers the entries that it had committed
// and not applied when it ended. Their callers learn that the outcome is unknown,
// and the next instance has all the room for entries of its own.
func TestRemakeForgetsFutures(t *testing.T) {
	t.Parallel()
	for range 4 { // whether raft forgets is up to chance
		l := &slowLedger{ledger: newLedger(), entered: make(chan struct{}), gate: make(chan struct{})}
		c := newCluster(t, 1, 1, func(cfg *Config) { cfg.Machine, cfg.MaxInFlight = l, 4 })
		c.store.StallAfter = -1 // the disk may be slow
		open := sync.OnceFunc(func() { close(l.gate) })
		t.Cleanup(open) // before the cluster's
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		g := c.start(1).groups[0]
		require.NoError(t, g.Bootstrap(c.members()))
		eventually(t, "leads", func() bool { return g.Status().Leading })
		outcomes := make(chan error, 2)
		go func() { _, err := g.Propose(ctx, []byte("slow")); outcomes <- err }()
		select {
		case <-l.entered:
		case err := <-outcomes:
			t.Fatalf("not applied: %v", err)
		}
		go func() { _, err := g.Propose(ctx, []byte("next")); outcomes <- err }()
		eventually(t, "committed, and waits for the machine", func() bool {
			for index := g.raft().CommitIndex(); index > 0; index-- {
				var l raft.Log
				if g.log.GetLog(index, &l) == nil && bytes.Contains(l.Data, []byte("next")) {
					return true
				}
			}
			return false
		})
		in, remade := g.current.Load(), make(chan error, 1)
		go func() { remade <- g.remakeRaft(nil) }()
		eventually(t, "ending", in.ending.over)
		open()
		require.NoError(t, <-remade)
		for range 2 {
			if err := <-outcomes; err != nil {
				require.ErrorIs(t, err, sundog.Unknown)
			}
		}
		eventually(t, "leads again", func() bool { return g.Status().Leading })
		for i := range 4 {
			_, err := g.Propose(ctx, []byte(command(i)))
			require.NoError(t, err)
		}
		require.NoError(t, g.Barrier(ctx))
		require.Equal(t, 1, l.count("next"))
		c.stop(1)
		cancel()
	}
}

// TestRemake: an instance made anew on the same stores
// applies nothing twice (the ledger panics) and forgets nothing.
func TestRemake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, nil)
	c.startAll()
	for i := range 20 {
		c.propose(0, command(i))
	}
	for _, n := range c.nodes {
		require.NoError(t, n.groups[0].remakeRaft(nil))
		c.propose(0, fmt.Sprintf("after %d", n.id))
	}
	c.converge(0)
	for _, n := range c.nodes {
		require.Equal(t, 1, n.ledgers[0].count(command(7)))
		has, err := raft.HasExistingState(n.groups[0].log, n.groups[0].log, n.groups[0].snaps)
		require.NoError(t, err)
		require.True(t, has)
	}
}
