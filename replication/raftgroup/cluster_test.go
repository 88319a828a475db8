package raftgroup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// cluster is a few nodes in one process, each with a store, a mux and one
// replica of each of some groups.
type cluster struct {
	t      testing.TB
	net    *network
	groups int
	tune   func(*Config)
	store  StoreConfig
	hooks  func(id sundog.NodeID) storeHooks
	nodes  map[sundog.NodeID]*testNode
}

type testNode struct {
	id      sundog.NodeID
	dir     string
	store   *Store
	mux     *Mux
	groups  []*Group
	ledgers []*ledger
	up      bool
}

const testHeartbeat = 400 * time.Millisecond

// steady are timings for tests in which no leader may lose its office on a busy
// machine.
func steady(cfg *Config) { cfg.Timings = sundog.DefaultTimings() }

func newCluster(t testing.TB, nodes, groups int, tune func(*Config)) *cluster {
	c := &cluster{t: t, net: newNetwork(), groups: groups, tune: tune, nodes: make(map[sundog.NodeID]*testNode)}
	for i := range nodes {
		id := sundog.NodeID(i + 1)
		c.nodes[id] = &testNode{id: id, dir: t.TempDir()}
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			c.stop(n.id)
		}
	})
	return c
}

// members are the server ids of all nodes' replicas.
func (c *cluster) members() []string {
	var names []string
	for id := range c.nodes {
		names = append(names, serverID(id, 1))
	}
	return names
}

// start opens a node on its directory.
func (c *cluster) start(id sundog.NodeID) *testNode {
	n := c.nodes[id]
	cfg := c.store
	cfg.Fatal = func(err error) { c.t.Errorf("node %s: %v", id, err) }
	var hooks storeHooks
	if c.hooks != nil {
		hooks = c.hooks(id)
	}
	var err error
	n.store, err = openStore(filepath.Join(n.dir, "raft.db"), cfg, hooks)
	require.NoError(c.t, err)
	n.mux = c.net.add(c.t, id, MuxConfig{Timeout: 2 * time.Second, DeadAfter: time.Second})
	n.groups, n.ledgers = nil, nil
	for i := range c.groups {
		l := newLedger()
		g, err := Open(c.config(n, GroupID(i), l))
		require.NoError(c.t, err)
		n.groups, n.ledgers = append(n.groups, g), append(n.ledgers, l)
	}
	n.up = true
	return n
}

func (c *cluster) config(n *testNode, id GroupID, l *ledger) Config {
	cfg := Config{
		ID: id, Self: serverID(n.id, 1), Store: n.store, Mux: n.mux, SnapshotDir: n.dir, Machine: l,
		Timings: sundog.Timings{Heartbeat: testHeartbeat, Lease: testHeartbeat / 2},
		Clock:   func() sundog.Clock { return sundog.ClockAt(time.Now()) },
	}
	if os.Getenv("SUNDOG_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", uint64(n.id))
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	return cfg
}

// startAll opens and bootstraps all nodes.
func (c *cluster) startAll() {
	for id := range c.nodes {
		c.start(id)
	}
	for _, n := range c.nodes {
		for _, g := range n.groups {
			require.NoError(c.t, g.Bootstrap(c.members()))
		}
	}
}

// stop ends a node. To its peers it is as if it were killed: its connections are
// reset before.
func (c *cluster) stop(id sundog.NodeID) {
	n := c.nodes[id]
	if !n.up {
		return
	}
	n.up = false
	c.net.remove(id)
	require.NoError(c.t, n.mux.Close())
	var all sync.WaitGroup
	for _, g := range n.groups {
		all.Go(func() { _ = g.Close() })
	}
	all.Wait()
	require.NoError(c.t, n.store.Close())
}

// leader waits for the node that leads a group and has committed in its term.
func (c *cluster) leader(group int) *testNode {
	c.t.Helper()
	var leader *testNode
	eventually(c.t, "a leader", func() bool {
		for _, n := range c.nodes {
			if n.up && n.groups[group].Status().Leading {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				err := n.groups[group].Barrier(ctx)
				cancel()
				if err == nil {
					leader = n
					return true
				}
			}
		}
		return false
	})
	return leader
}

// follower is a node that is up and does not lead the group.
func (c *cluster) follower(group int) *testNode {
	leader := c.leader(group)
	for _, n := range c.nodes {
		if n.up && n != leader {
			return n
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// propose sends a command to whichever node leads, until it is done for sure; it
// may be applied more than once.
func (c *cluster) propose(group int, command string) {
	c.t.Helper()
	eventually(c.t, "proposed "+command, func() bool {
		for _, n := range c.nodes {
			if n.up && n.groups[group].Status().Leading {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, err := n.groups[group].Propose(ctx, []byte(command))
				cancel()
				if err == nil {
					return true
				}
			}
		}
		return false
	})
}

// converge waits until all nodes that are up have applied the same log.
func (c *cluster) converge(group int) {
	c.t.Helper()
	least := c.leader(group).groups[group].Status().Applied
	eventually(c.t, "equal replicas", func() bool {
		type state struct{ applied, index, chain uint64 }
		seen := make(map[state]bool)
		for _, n := range c.nodes {
			if n.up {
				s := state{applied: n.groups[group].Status().Applied}
				s.index, s.chain = n.ledgers[group].state()
				seen[s] = s.applied >= least
			}
		}
		for _, ok := range seen {
			return ok && len(seen) == 1
		}
		return false
	})
}

func command(i int) string { return fmt.Sprintf("command-%d", i) }
