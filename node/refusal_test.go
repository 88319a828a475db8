package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// TestJoinWithoutWork is CASE 23: one partition of three replicas gives work to
// three nodes.
func TestJoinWithoutWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, func(i int, cfg *Config) {
		cfg.Partitions, cfg.BootstrapExpect = 1, 0
		if i == 0 {
			cfg.BootstrapExpect = 1
		}
	})
	for i := range 3 {
		c.start(i)
	}
	c.ready()
	late := c.start(3)
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	defer cancel()
	err := late.Wait(ctx)
	require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "--partitions")
}

func TestWrongCluster(t *testing.T) {
	t.Parallel()
	one := func(int, *Config) {}
	a, b := newCluster(t, 1, one), newCluster(t, 1, one)
	a.startAll()
	b.startAll()
	a.ready()
	b.ready()
	ours, theirs := a.view().Cluster, b.view().Cluster
	require.NotEqual(t, ours, theirs)
	n := a.nodes[0]

	// A client that wants the other cluster is refused with both named.
	_, err := rpc.Dial(t.Context(), n.Addrs().Listen, rpc.DialConfig{Cluster: theirs})
	require.Error(t, err)
	require.ErrorContains(t, err, ours)
	require.ErrorContains(t, err, theirs)
	// So is a node of it, and a map.
	err = b.nodes[0].directory.conns.Close()
	require.NoError(t, err)
	_, _, err = rpc.DialUpgrade(t.Context(), n.Addrs().Listen, lanePrefix+"bulk", rpc.DialConfig{Identify: b.nodes[0].identity})
	require.Error(t, err)
	require.ErrorContains(t, err, theirs)
	_, err = n.atlas.Offer(b.view())
	require.Equal(t, sundog.Conflict, sundog.KindOf(err))
}

// TestClonedDirectory: a copy of a node's directory starts beside it, which may
// be the one that leads the catalog.
func TestClonedDirectory(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("leads %v", leads), func(t *testing.T) {
			t.Parallel()
			testCloned(t, leads)
		})
	}
}

func testCloned(t *testing.T, leads bool) {
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	c.stop(2)
	clone := t.TempDir()
	copyDir(t, c.dirs[2], clone)
	c.start(2)
	c.ready()
	for c.nodes[2].council.leads() != leads { // the election after this one is another's, or not
		i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n.council.leads() })
		if i < 0 {
			wait(t.Context(), admittedPoll)
			continue
		}
		c.kill(i)
		if i == 2 {
			require.NoError(t, os.RemoveAll(clone)) // it is to be the start before this one
			clone = t.TempDir()
			copyDir(t, c.dirs[2], clone)
		}
		c.eventually("another one leads", func() bool {
			return slices.ContainsFunc(c.nodes, func(n *Node) bool { return n != nil && n.council.leads() })
		})
		c.start(i)
		c.ready()
	}
	cfg := c.config(2)
	cfg.Data = clone
	twin, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	defer twin.kill()
	require.Equal(t, c.nodes[2].ID(), twin.ID())
	c.eventually("the clone is refused and says so", func() bool {
		ok, why := twin.Ready()
		text := strings.Join(why, "; ")
		return !ok && strings.Contains(text, "cloned")
	})
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	defer cancel()
	require.Equal(t, sundog.Conflict, sundog.KindOf(twin.Wait(ctx)))
	require.NoError(t, twin.kill())
	c.ready() // the original serves on
	c.fenced(cfg)
	c.ready()
}

// fenced starts a copy over and over, as a supervisor does, until the catalog's
// voters have condemned it; it is never admitted, and not counted.
func (c *cluster) fenced(cfg Config) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, testDeadline)
	defer cancel()
	for boot := uint64(0); ; {
		n, err := Open(ctx, cfg)
		if err != nil {
			require.Equal(c.t, sundog.Conflict, sundog.KindOf(err), "%v", err)
			require.ErrorContains(c.t, err, "move it away")
			return
		}
		if boot == 0 {
			boot = n.dir.Boot()
		}
		again, refusal := n.dir.Boot(), n.Admitted(ctx)
		require.NoError(c.t, n.kill())
		require.Equal(c.t, boot, again, "a refused start is counted")
		require.Equal(c.t, sundog.Conflict, sundog.KindOf(refusal), "%v", refusal)
	}
}

// TestCopyOfARunningNode: a copy that is made while the node runs would be its
// next start. The node that answers is the one that stays.
func TestCopyOfARunningNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	cl := c.client("p")
	cl.fill(0, 5)
	clone := t.TempDir()
	copyDir(t, c.dirs[2], clone)
	original := c.nodes[2]
	for range 3 { // a supervisor starts it over
		cfg := c.config(2)
		cfg.Data = clone
		twin, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, original.ID(), twin.ID())
		require.Equal(t, original.dir.Boot()+1, twin.dir.Boot())
		ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
		err = twin.Admitted(ctx)
		cancel()
		require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "is running")
		require.NoError(t, twin.kill())
	}
	in, ok := c.view().Node(original.ID())
	require.True(t, ok)
	require.Equal(t, original.dir.Boot(), in.Boot, "the catalog knows the original")
	c.ready()
	cl.fill(5, 5)
	cl.verify(10)
	// The original restarts as ever, killed and on other ports.
	c.kill(2)
	c.start(2)
	c.ready()
	// From then on the copy is behind.
	cfg := c.config(2)
	cfg.Data = clone
	c.fenced(cfg)
	c.checkEqual("p")
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.startAll()
	_, err := Open(t.Context(), c.config(0))
	require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "in use")
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := l.Addr().String()
	for flag, edit := range map[string]func(*Config){
		"--listen": func(c *Config) { c.Listen = addr },
		"--http":   func(c *Config) { c.HTTP = addr },
		"--gossip": func(c *Config) { c.Gossip = addr },
	} {
		c := newCluster(t, 1, func(_ int, cfg *Config) { edit(cfg) })
		_, err := c.tryStart(0)
		require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%s: %v", flag, err)
		require.ErrorContains(t, err, addr)
		require.ErrorContains(t, err, flag)
	}
}

// TestSecret: with one, gossip is encrypted and node connections are proved; a
// stranger with another secret is not let in, and a client needs none.
func TestSecret(t *testing.T) {
	t.Parallel()
	secret := []byte("correct horse battery staple")
	c := newCluster(t, 3, func(_ int, cfg *Config) { cfg.Secret = secret })
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	cl := c.client("p")
	cl.fill(0, 5)
	cl.verify(5)
	err := c.call(c.nodes[0], rpc.MethodStatus, &rpcpb.StatusRequest{}, &rpcpb.StatusReply{})
	require.Equal(t, sundog.Denied, sundog.KindOf(err), "a client may not call node methods: %v", err)
	stranger := rpc.Identity{Node: 77, Boot: 1, Nonce: 1}
	_, err = rpc.Dial(t.Context(), c.nodes[0].Addrs().Listen, rpc.DialConfig{
		Identity: &stranger, Secret: []byte("another secret of good length"),
	})
	require.Error(t, err)
}

// TestRestoredDirectory: a copy from before the last start comes back instead of
// the original. All others were restarted since, and know its boot counter from
// the map alone.
func TestRestoredDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	c.stop(2)
	backup := t.TempDir()
	copyDir(t, c.dirs[2], backup)
	for range 2 {
		c.start(2)
		c.ready()
		c.stop(2)
	}
	c.stop(0)
	c.stop(1)
	c.dirs[2] = backup
	c.startAll()
	old := c.nodes[2]
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	defer cancel()
	err := old.Wait(ctx)
	require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
	require.EqualValues(t, 2, old.dir.Boot())
	id := old.ID()
	c.stop(2)
	c.fenced(c.config(2))
	c.eventually("the others go on", func() bool {
		st, ok := c.nodes[0].council.status()
		return ok && st.Leader != 0 && st.Leader != id
	})
}

// TestJoinOfAnotherCluster: a directory of one cluster is started with --join at
// another.
func TestJoinOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a := newCluster(t, 1, nil)
	a.startAll()
	a.ready()
	seed := a.nodes[0].Addrs().Gossip
	b := newCluster(t, 2, nil)
	b.startAll()
	b.ready()
	b.stop(0)
	b.stop(1)
	b.edit = func(_ int, cfg *Config) { cfg.Join = []string{seed} }
	n := b.start(0)
	b.eventually("it says so", func() bool {
		_, why := n.Ready()
		text := strings.Join(why, "; ")
		return strings.Contains(text, a.view().Cluster) && strings.Contains(text, n.cluster()) && strings.Contains(text, "--join")
	})
	a.ready()
}
