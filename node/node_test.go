package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// TestThreeNodes is the walk of the first release: found, create, put, get, lose
// a leader, go on, get it back.
func TestThreeNodes(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[1], "p", 3))
	c.ready()
	m := c.view()
	require.Equal(t, 3, m.Replicas)
	require.Len(t, catalogVoters(m), 3)
	cl := c.client("p")
	cl.fill(0, 50)
	cl.verify(50)
	c.checkEqual("p")

	down := c.leaderOf(0)
	c.kill(down)
	cl.fill(50, 50)
	cl.verify(100)
	c.eventually("the loss shows", func() bool {
		ok, _ := c.someNode().Ready()
		return !ok
	})
	c.start(down)
	c.ready()
	cl.verify(100)
	c.checkEqual("p")
}

// TestPreferredOwnersLead: at birth the leaders are where the placement wants
// them.
func TestPreferredOwnersLead(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	m := c.view()
	preferred := 0
	for p := range sundog.Partition(m.Partitions) {
		if c.nodes[c.leaderOf(p)].ID() == m.Owners(p)[0].Node {
			preferred++
		}
	}
	require.GreaterOrEqual(t, preferred, 3, "of %d", m.Partitions)
}

func TestPoolMethods(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.startAll()
	c.ready()
	n := c.nodes[0]
	err := c.createPool(n, "p", 3)
	require.Equal(t, sundog.Invalid, sundog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "--replicas 1")
	require.NoError(t, c.createPool(n, "p", 1))
	err = c.createPool(n, "p", 1)
	require.Equal(t, sundog.Exists, sundog.KindOf(err), "%v", err)
	err = c.createPool(n, "q", 2)
	require.Equal(t, sundog.Invalid, sundog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "--replicas 1")
	require.NoError(t, c.createPool(n, "q", 0), "no count asked for: the cluster's")

	require.NoError(t, c.call(n, rpc.MethodPoolSet, &rpcpb.PoolSetRequest{Name: "p", Spec: &rpcpb.PoolSpec{Quota: 1 << 20}}, &rpcpb.PoolSetReply{}))
	cl := c.client("p")
	cl.fill(0, 10)
	var d rpcpb.PoolDescribeReply
	require.NoError(t, c.call(n, rpc.MethodPoolDescribe, &rpcpb.PoolDescribeRequest{Name: "p"}, &d))
	require.Equal(t, int64(10), d.GetKeys())
	require.Equal(t, int64(10*(len("key-0")+len("value-0"))), d.GetUsed())
	require.Equal(t, int64(1<<20), d.GetSpec().GetQuota())
	require.Equal(t, d.GetPartitions(), d.GetPartitionsReady())

	require.NoError(t, c.call(n, rpc.MethodPoolDelete, &rpcpb.PoolDeleteRequest{Name: "p"}, &rpcpb.PoolDeleteReply{}))
	err = c.call(n, rpc.MethodPoolDelete, &rpcpb.PoolDeleteRequest{Name: "p"}, &rpcpb.PoolDeleteReply{})
	require.Equal(t, sundog.NotFound, sundog.KindOf(err))
	err = c.call(n, rpc.MethodPoolDescribe, &rpcpb.PoolDescribeRequest{Name: "p"}, &d)
	require.Equal(t, sundog.NotFound, sundog.KindOf(err))
	c.checkEqual("q")
}

func TestNodesAndPartitions(t *testing.T) {
	c := newCluster(t, 3, func(i int, cfg *Config) { cfg.Zone = fmt.Sprintf("zone-%d", i) })
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	c.ready()
	var nodes rpcpb.NodesReply
	require.NoError(t, c.call(c.nodes[2], rpc.MethodNodes, &rpcpb.NodesRequest{}, &nodes))
	require.Len(t, nodes.GetNodes(), 3)
	leaders := uint32(0)
	for _, n := range nodes.GetNodes() {
		require.Equal(t, "alive", n.GetState())
		require.Equal(t, uint32(4), n.GetReplicas())
		require.True(t, n.GetSafeToStop(), n.GetReason())
		require.True(t, strings.HasPrefix(n.GetZone(), "zone-"))
		leaders += n.GetLeaders()
	}
	require.Equal(t, uint32(4), leaders)
	var parts rpcpb.PartitionsReply
	require.NoError(t, c.call(c.nodes[2], rpc.MethodPartitions, &rpcpb.PartitionsRequest{}, &parts))
	require.Len(t, parts.GetPartitions(), 4)
	for _, p := range parts.GetPartitions() {
		require.NotZero(t, p.GetLeader())
		require.NotZero(t, p.GetTerm())
		require.Len(t, p.GetReplicas(), 3)
	}
	c.kill(0)
	c.eventually("the others are no longer safe to stop", func() bool {
		var nodes rpcpb.NodesReply
		if c.call(c.nodes[2], rpc.MethodNodes, &rpcpb.NodesRequest{}, &nodes) != nil {
			return false
		}
		dead, unsafe := 0, 0
		for _, n := range nodes.GetNodes() {
			if n.GetState() == "dead" {
				dead++
			} else if !n.GetSafeToStop() && strings.Contains(n.GetReason(), "needs 2") {
				unsafe++
			}
		}
		return dead == 1 && unsafe == 2
	})
}

// TestRestartOnNewPorts: all nodes at once, on ports that nobody knows yet but
// the seeds'.
func TestRestartOnNewPorts(t *testing.T) {
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

// TestFoundingWithoutOne: two of three wait; the third may be late.
func TestFoundingWithoutOne(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.start(0)
	c.start(1)
	c.eventually("they say what they wait for", func() bool {
		_, why := c.nodes[0].Ready()
		return strings.Contains(strings.Join(why, " "), "2 of 3 nodes seen")
	})
	require.Nil(t, c.nodes[0].atlas.Map())
	c.start(2)
	c.ready()
	require.Len(t, c.view().Nodes, 3)
}

// TestJoin: more nodes join, become voters up to five, standbys after.
func TestJoin(t *testing.T) {
	c := newCluster(t, 7, func(i int, cfg *Config) {
		cfg.BootstrapExpect = 0
		if i == 0 {
			cfg.BootstrapExpect = 1
		}
	})
	c.startAll()
	c.ready()
	c.eventually("all have their seats", func() bool {
		st, ok := c.nodes[0].council.status()
		return ok && len(st.Members) == 5 && len(st.Learners) == 2
	})
	m := c.view()
	require.Len(t, m.Nodes, 7)
	require.NoError(t, c.createPool(c.nodes[6], "p", 3))
	cl := c.client("p")
	cl.fill(0, 20)
	cl.verify(20)
}

// TestJoinWithoutWork is CASE 23: one partition of three replicas gives work to
// three nodes.
func TestJoinWithoutWork(t *testing.T) {
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

// TestClonedDirectory: a copy of a node's directory starts beside it.
func TestClonedDirectory(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	c.stop(2)
	clone := t.TempDir()
	copyDir(t, c.dirs[2], clone)
	c.start(2)
	c.ready()
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
}

func TestDirectoryInUse(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.startAll()
	_, err := Open(t.Context(), c.config(0))
	require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "in use")
}

func TestPortTaken(t *testing.T) {
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

func TestPortsFileAndPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports.json")
	c := newCluster(t, 1, func(_ int, cfg *Config) { cfg.PortsFile = file })
	n := c.start(0)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var addrs Addrs
	require.NoError(t, json.Unmarshal(data, &addrs))
	require.Equal(t, n.Addrs(), addrs)
	c.ready()

	for path, want := range map[string]string{
		"/healthz": "alive", "/readyz": `"ready":true`, "/metrics": "sundog_map_epoch",
	} {
		status, body := page(t, addrs.HTTP, path)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, want)
	}
	require.NoError(t, c.call(n, rpc.MethodNodes, &rpcpb.NodesRequest{}, &rpcpb.NodesReply{}))
	_, figures := page(t, addrs.HTTP, "/metrics")
	for _, name := range []string{
		"sundog_requests_total", "sundog_request_seconds", "sundog_groups", "sundog_leaders", "sundog_keys", "sundog_data_bytes",
		"sundog_memory_used_bytes", "sundog_memory_limit_bytes", "sundog_gossip_members", "sundog_gossip_events_total",
		"sundog_raft_entries_total", "sundog_raft_commands_total", "sundog_raft_store_commit_seconds", "sundog_raft_store_commit_operations",
		"sundog_raft_snapshots_total", "sundog_raft_snapshot_installs_total", "sundog_rpc_connections", "sundog_rpc_connections_refused_total",
		"sundog_rpc_panics_total", "go_goroutines", "process_open_fds",
	} {
		require.True(t, strings.Contains(figures, "\n"+name), "docs/operations.md names %s", name)
	}
	status, _ := page(t, addrs.HTTP, "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, status, "off unless asked for")
	require.NoError(t, n.Close())
	c.nodes[0] = nil
}

func page(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: testDeadline, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode, readAll(t, resp)
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

func TestStaleAndNewerEpochs(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 1))
	m := c.view()
	conn := c.conn(c.nodes[0])
	get := func(pool sundog.PoolID, epoch sundog.Epoch) error {
		ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
		defer cancel()
		_, err := conn.Call(ctx, rpc.MethodGet, epoch, rpc.EncodeGet(rpc.GetRequest{Pool: pool, Key: []byte("k")}))
		return err
	}
	pool := m.Pools[0]
	require.Equal(t, sundog.NotFound, sundog.KindOf(get(pool.ID, m.Epoch)))
	err := get(pool.ID, pool.Created-1)
	require.Equal(t, sundog.Stale, sundog.KindOf(err))
	require.Equal(t, m.Epoch, sundog.AsError(err).Epoch)
	require.Equal(t, sundog.NotFound, sundog.KindOf(get(99, m.Epoch)))
	require.Equal(t, sundog.Stale, sundog.KindOf(get(99, m.Epoch-1)))
	began := time.Now()
	require.Equal(t, sundog.Unavailable, sundog.KindOf(get(pool.ID, m.Epoch+1000)))
	require.Less(t, time.Since(began), 5*time.Second)
}

// TestNextSeat: founders first, then live nodes, five voters, four standbys.
func TestNextSeat(t *testing.T) {
	m := &ring.Map{Founders: []sundog.NodeID{1, 2}}
	alive := func(id sundog.NodeID) bool { return id != 4 }
	id, _ := nextSeat(m, alive)
	require.Zero(t, id, "the founders' seats are kept")
	for i := range sundog.NodeID(12) {
		m.Nodes = append(m.Nodes, ring.Node{ID: i + 1})
	}
	var order []string
	for {
		id, role := nextSeat(m, alive)
		if id == 0 {
			break
		}
		order = append(order, fmt.Sprintf("%d %s", id, role))
		m.Nodes[id-1].Catalog = role
	}
	require.Equal(t, []string{
		"1 voter", "2 voter", "3 voter", "5 voter", "6 voter", "7 standby", "8 standby", "9 standby", "10 standby",
	}, order)
}

// TestSecret: with one, gossip is encrypted and node connections are proved; a
// stranger with another secret is not let in, and a client needs none.
func TestSecret(t *testing.T) {
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

// TestReplaceWhileOneIsDead is CASE 25: a node is killed and at once another
// joins.
func TestReplaceWhileOneIsDead(t *testing.T) {
	c := newCluster(t, 4, func(i int, cfg *Config) {
		if cfg.BootstrapExpect = 3; i == 3 {
			cfg.BootstrapExpect = 0
		}
	})
	for i := range 3 {
		c.start(i)
	}
	c.ready()
	c.kill(1)
	began := time.Now()
	late := c.start(3)
	c.eventually("it is in", func() bool {
		m := late.atlas.Map()
		return m != nil && late.registrar.registered(m)
	})
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestLostLog: a data directory whose log store was removed says so and takes no
// part, rather than vote with an empty memory; the others go on.
func TestLostLog(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	c.ready()
	cl := c.client("p")
	cl.fill(0, 5)
	c.stop(2)
	require.NoError(t, os.Remove(filepath.Join(c.dirs[2], "raft.db")))
	n := c.start(2)
	c.eventually("it says so", func() bool {
		_, why := n.Ready()
		text := strings.Join(why, "; ")
		return strings.Contains(text, "catalog is gone") && strings.Contains(text, "partition 0 is gone")
	})
	require.Nil(t, n.hosting.get(0))
	cl.verify(5)
	cl.fill(5, 5)
}

// TestCreateAtOnce: a pool asked for before the cluster is founded waits for all
// founders.
func TestCreateAtOnce(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.startAll()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	for _, r := range c.view().Placement {
		require.Len(t, r, 3)
	}
	c.ready()
}
