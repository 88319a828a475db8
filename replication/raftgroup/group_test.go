package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
	"go.uber.org/goleak"
)

func TestElectionAndApply(t *testing.T) {
	defer goleak.VerifyNone(t)
	var mu sync.Mutex
	var leading []bool
	c := newCluster(t, 3, 1, func(cfg *Config) {
		if cfg.Self == serverID(1, 1) {
			cfg.OnLeader = func(l bool, term uint64) {
				mu.Lock()
				defer mu.Unlock()
				leading = append(leading, l)
			}
		}
	})
	defer func() {
		for id := range c.nodes {
			c.stop(id)
		}
	}()
	c.startAll()
	leader := c.leader(0)
	for i := range 10 {
		got, err := leader.groups[0].Propose(t.Context(), []byte(command(i)))
		require.NoError(t, err)
		require.Equal(t, 1, got)
	}
	c.converge(0)

	st := leader.groups[0].Status()
	require.Equal(t, "leader", st.State)
	require.Equal(t, leader.id, st.Leader)
	require.Equal(t, st.Commit, st.Applied)
	require.Equal(t, st.LastIndex, st.Applied)
	require.ElementsMatch(t, c.members(), st.Members)
	require.EqualValues(t, 1, st.ConfigIndex)
	require.Zero(t, st.LastContact)
	f := c.follower(0).groups[0]
	require.Equal(t, "follower", f.Status().State)
	require.Positive(t, f.Status().LastContact)
	_, err := f.Propose(t.Context(), []byte("x"))
	require.ErrorIs(t, err, sundog.NotOwner)
	require.Equal(t, leader.id, sundog.AsError(err).Leader)
	require.ErrorIs(t, f.Barrier(t.Context()), sundog.NotOwner)

	// Bootstrap again: the same list does nothing, another one is refused.
	require.NoError(t, f.Bootstrap(c.members()))
	require.ErrorIs(t, f.Bootstrap([]string{f.cfg.Self}), sundog.Conflict)
	require.ErrorIs(t, f.Bootstrap([]string{serverID(9, 1)}), sundog.Invalid)

	// The callback knows whether node 1 leads, also after it lost that.
	eventually(t, "told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return (leader.id == 1) == (len(leading) > 0 && leading[len(leading)-1])
	})
	c.net.isolate(1, hard)
	eventually(t, "told of the end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(leading) == 0 || !leading[len(leading)-1]
	})
}

func TestSingleReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, nil)
	c.startAll()
	c.propose(1, "a")
	c.stop(1)
	n := c.start(1)
	c.propose(1, "b")
	require.Equal(t, 1, n.ledgers[1].count("a"))
	_, err := Open(c.config(n, 1, newLedger()))
	require.ErrorIs(t, err, sundog.Conflict, "open already")
}

// TestConcurrentProposals: each acknowledged command was applied once, none that
// was surely not proposed was, and many share an entry.
func TestConcurrentProposals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, steady)
	c.startAll()
	leader := c.leader(0)
	before := leader.groups[0].Status().Applied
	const n = 4000
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := leader.groups[0].Propose(t.Context(), []byte(command(i)))
			if err != nil || got != 1 {
				t.Errorf("command %d: %v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	c.converge(0)
	used := leader.groups[0].Status().Applied - before
	t.Logf("%d commands in %d entries", n, used)
	require.Less(t, used, uint64(n/4))
	for _, node := range c.nodes {
		for i := range n {
			require.Equal(t, 1, node.ledgers[0].count(command(i)))
		}
	}
}

func TestLargeAndManyCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, func(cfg *Config) {
		steady(cfg)
		cfg.MaxBatchBytes, cfg.MaxBatch = 1000, 10
	})
	c.startAll()
	leader := c.leader(0)
	big := make([]byte, 5<<20) // more than a batch and more than a frame
	_, err := leader.groups[0].Propose(t.Context(), big)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			_, err := leader.groups[0].Propose(t.Context(), fmt.Appendf(nil, "%0300d", i))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c.converge(0)
	full := newProposals(&Config{MaxQueueBytes: 10})
	full.queue, full.bytes = []*proposal{{}}, 8
	_, err = full.submit(t.Context(), &proposal{command: make([]byte, 3)}, false)
	require.ErrorIs(t, err, sundog.Unavailable)
}

// TestOutcomes: cut off from its followers a leader answers Unknown for what it
// had proposed, and Timeout for what it had not.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, func(cfg *Config) {
		cfg.Timings = sundog.Timings{Heartbeat: 2 * time.Second, Lease: time.Second}
		cfg.MaxInFlight = 1
	})
	c.startAll()
	leader := c.leader(0)
	g := leader.groups[0]
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.Propose(done, []byte("late"))
	require.ErrorIs(t, err, sundog.Timeout)
	require.ErrorIs(t, err, context.Canceled)

	c.net.isolate(leader.id, silent)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = g.Propose(short, []byte("first"))
	require.ErrorIs(t, err, sundog.Unknown)
	_, err = g.Propose(short, []byte("second"))
	require.ErrorIs(t, err, sundog.Timeout)
	short2, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = g.Propose(short2, []byte("second"))
	require.ErrorIs(t, err, sundog.Timeout, "the only slot is taken: it was never proposed")
	require.ErrorIs(t, g.Barrier(short2), sundog.Timeout)

	// What waits when the leadership is lost learns of it at once.
	outcomes := make(chan error, 2)
	go func() { _, err := g.Propose(t.Context(), []byte("third")); outcomes <- err }()
	go func() { outcomes <- g.Barrier(t.Context()) }()
	for range 2 {
		err := <-outcomes
		require.True(t, errors.Is(err, sundog.NotOwner) || errors.Is(err, sundog.Unknown), "%v", err)
	}
	c.net.isolate(leader.id, whole)
	c.propose(0, "after")
	c.converge(0)
	for _, n := range c.nodes {
		require.Zero(t, n.ledgers[0].count("second"))
	}
}

// loadedCluster is a cluster under load whose nodes go up and down.
type loadedCluster struct {
	*cluster
	stopped atomic.Bool
	writers sync.WaitGroup
	nodeMu  sync.RWMutex // held for writing while a node goes up or down
	// outcomes of commands, by group: loadDone, loadUnknown or loadRefused.
	outcomes []sync.Map
	counts   [3]atomic.Int64 // by outcome
}

const (
	loadDone = iota
	loadUnknown
	loadRefused
)

// write proposes commands of its own to all groups in turn.
func (c *loadedCluster) write(writer int) {
	for i := 0; !c.stopped.Load(); i++ {
		group := (writer + i) % c.groups
		cmd := fmt.Sprintf("%d-%d-%0100d", writer, i, 0)
		c.nodeMu.RLock()
		var g *Group
		for _, n := range c.nodes {
			if n.up && n.groups[group].Status().Leading {
				g = n.groups[group]
			}
		}
		c.nodeMu.RUnlock()
		if g == nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := g.Propose(ctx, []byte(cmd))
		cancel()
		outcome := loadRefused
		switch {
		case err == nil:
			outcome = loadDone
		case errors.Is(err, sundog.Unknown):
			outcome = loadUnknown
		}
		c.outcomes[group].Store(cmd, outcome)
		c.counts[outcome].Add(1)
	}
}

// restart kills a node and starts it again a little later.
func (c *loadedCluster) restart(id sundog.NodeID) {
	c.nodeMu.Lock()
	c.stop(id)
	c.nodeMu.Unlock()
	time.Sleep(rand.N(300 * time.Millisecond))
	c.nodeMu.Lock()
	c.start(id)
	c.nodeMu.Unlock()
}

// check compares every replica with what the writers were told.
func (c *loadedCluster) check(t *testing.T) {
	for group := range c.groups {
		c.propose(group, "end")
		c.converge(group)
		for _, n := range c.nodes {
			c.outcomes[group].Range(func(cmd, outcome any) bool {
				got := n.ledgers[group].count(cmd.(string))
				switch outcome {
				case loadDone:
					require.Equal(t, 1, got, "acknowledged %s", cmd)
				case loadUnknown:
					require.LessOrEqual(t, got, 1, "unknown %s", cmd)
				default:
					require.Zero(t, got, "refused %s", cmd)
				}
				return true
			})
		}
	}
}

// TestKillAndRestart: nodes are killed and restarted under load; nothing that
// was acknowledged is lost, nothing acknowledged once is applied twice, and
// replicas are equal.
func TestKillAndRestart(t *testing.T) {
	defer goleak.VerifyNone(t)
	const groups = 3
	c := &loadedCluster{outcomes: make([]sync.Map, groups)}
	c.cluster = newCluster(t, 3, groups, func(cfg *Config) { cfg.SnapshotBytes, cfg.TrailingBytes = 16<<10, 4<<10 })
	defer func() {
		for id := range c.nodes {
			c.stop(id)
		}
	}()
	c.startAll()
	for w := range 12 {
		c.writers.Go(func() { c.write(w) })
	}
	for range 4 {
		c.restart(c.leader(rand.N(groups)).id)
		c.restart(sundog.NodeID(1 + rand.N(3)))
	}
	c.stopped.Store(true)
	c.writers.Wait()
	t.Logf("%d done, %d unknown, %d surely not done", c.counts[loadDone].Load(), c.counts[loadUnknown].Load(), c.counts[loadRefused].Load())
	require.Greater(t, c.counts[loadDone].Load(), int64(100))
	c.check(t)
}

// TestLaggingFollowerGetsSnapshot: a follower that was away until its log was
// gone is fed by a snapshot, and its status is true, also after a restart.
func TestLaggingFollowerGetsSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, func(cfg *Config) { cfg.SnapshotBytes, cfg.TrailingBytes = 1<<40, 1 })
	c.startAll()
	late := c.follower(0)
	c.stop(late.id)
	for i := range 300 {
		c.propose(0, command(i))
	}
	leader := c.leader(0)
	require.NoError(t, leader.groups[0].Snapshot(t.Context()))
	first, err := leader.groups[0].log.FirstIndex()
	require.NoError(t, err)
	require.Greater(t, first, uint64(290))
	for i := range 20 {
		c.propose(0, command(1000+i))
	}
	c.start(late.id)
	c.converge(0)
	require.Positive(t, late.ledgers[0].restores)
	st := late.groups[0].Status()
	require.Equal(t, leader.groups[0].Status().Applied, st.Applied)
	require.ElementsMatch(t, c.members(), st.Members)
	require.EqualValues(t, 1, st.ConfigIndex)

	c.stop(late.id) // now it has a snapshot of its own to start from
	late = c.start(late.id)
	c.converge(0)
	require.Positive(t, late.ledgers[0].restores)
}

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	for _, kind := range []cutKind{hard, silent} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			c := newCluster(t, 3, 1, nil)
			c.startAll()
			old := c.leader(0)
			c.propose(0, "before")
			c.net.isolate(old.id, kind)
			stale, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := old.groups[0].Propose(stale, []byte("lost"))
			cancel()
			require.Error(t, err)
			require.True(t, errors.Is(err, sundog.Unknown) || errors.Is(err, sundog.NotOwner), "%v", err)
			eventually(t, "another leader", func() bool {
				for _, n := range c.nodes {
					if n != old && n.groups[0].Status().Leading {
						return true
					}
				}
				return false
			})
			eventually(t, "the old one gives up", func() bool { return !old.groups[0].Status().Leading })
			c.propose(0, "during")
			c.net.isolate(old.id, whole)
			c.propose(0, "after")
			c.converge(0)
			for _, n := range c.nodes {
				require.Equal(t, 1, n.ledgers[0].count("before"))
				require.GreaterOrEqual(t, n.ledgers[0].count("during"), 1)
			}
		})
	}
}
