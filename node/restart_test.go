package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// TestRestartOnNewPorts: all nodes at once, on ports that nobody knows yet but
// the seeds'.
func TestRestartOnNewPorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	cl := c.client("p")
	cl.fill(0, 30)
	cluster := c.view().Cluster
	for i := range c.nodes {
		c.kill(i)
	}
	c.startAll()
	c.eventually("the first node has its map", func() bool { return c.nodes[0].atlas.Map() != nil })
	c.checkEqual("p") // waits for leaders by itself
	c.ready()
	require.Equal(t, cluster, c.view().Cluster)
	cl = c.client("p")
	cl.verify(30)
	cl.fill(30, 10)
	cl.verify(40)
	c.checkEqual("p")
	m := c.view()
	for _, n := range c.nodes {
		in, ok := m.Node(n.ID())
		require.True(t, ok)
		require.Equal(t, n.Addrs().Listen, in.Listen, "the catalog has the new address")
		require.Equal(t, uint64(2), in.Boot)
	}
}

// TestTwelveRestart is CASE 21 with whole nodes.
func TestTwelveRestart(t *testing.T) {
	const size = 12
	c := newCluster(t, size, func(i int, cfg *Config) {
		cfg.BootstrapExpect = 0
		cfg.Timings = sundog.DefaultTimings() // twelve nodes, few cores
		if i == 0 {
			cfg.BootstrapExpect = 1
		}
	})
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[3], "p", 3))
	c.client("p").fill(0, 20)
	for i := range c.nodes {
		c.kill(i)
	}
	c.startAll()
	c.ready()
	for _, n := range c.nodes {
		require.Len(t, n.members.Members(), size)
	}
	c.client("p").verify(20)
}

// TestLostLog: a data directory whose log store was removed, emptied, or replaced
// by an older copy does not start, rather than vote with less memory than it had;
// the others go on.
func TestLostLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	cl := c.client("p")
	cl.fill(0, 5)
	c.stop(2)
	path := filepath.Join(c.dirs[2], storeName)
	older, err := os.ReadFile(path)
	require.NoError(t, err)
	c.start(2)
	c.ready()
	c.stop(2)
	newest, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, damage := range map[string]func() error{
		"gone":    func() error { return os.Remove(path) },
		"emptied": func() error { return os.WriteFile(path, nil, 0o600) },
		"older":   func() error { return os.WriteFile(path, older, 0o600) },
	} {
		require.NoError(t, damage())
		_, err := c.tryStart(2)
		require.Equal(t, sundog.Corrupt, sundog.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, storeName)
	}
	cl.verify(5)
	cl.fill(5, 5)
	require.NoError(t, os.WriteFile(path, newest, 0o600))
	c.start(2)
	c.ready()
	cl.verify(10)
}

// TestOneOnNewPorts: a node comes back elsewhere without being told of anybody;
// it remembers its peers, and the catalog learns its new address.
func TestOneOnNewPorts(t *testing.T) {
	t.Parallel()
	alone := false
	c := newCluster(t, 3, func(_ int, cfg *Config) {
		if alone {
			cfg.Join = nil
		}
	})
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	c.ready()
	c.eventually("peers are saved", func() bool {
		peers, err := c.nodes[1].dir.LoadPeers()
		return err == nil && len(peers) == 2
	})
	c.kill(1)
	cl := c.client("p")
	cl.fill(0, 20)
	alone = true
	back := c.start(1)
	c.ready()
	c.eventually("everybody has its address", func() bool {
		for _, n := range c.nodes {
			if in, ok := n.atlas.Map().Node(back.ID()); !ok || in.Listen != back.Addrs().Listen {
				return false
			}
		}
		return true
	})
	cl.verify(20)
	c.checkEqual("p")
}

// TestDamagedCopies: the map and the peers on disk are copies; without them a
// node starts all the same.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 1))
	c.client("p").fill(0, 5)
	c.stop(0)
	for _, name := range []string{"map", "peers"} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dirs[0], name), []byte("not what was written"), 0o600))
	}
	c.startAll()
	c.ready()
	c.client("p").verify(5)
}
