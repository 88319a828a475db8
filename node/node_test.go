package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// TestThreeNodes is the walk of the first release: found, create, put, get, lose
// a leader, go on, get it back.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
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
	var check rpcpb.CheckReply
	require.NoError(t, c.callWithin(4*time.Second, c.someNode(), rpc.MethodCheck, &rpcpb.CheckRequest{Pool: "p"}, &check))
	require.False(t, check.GetEqual())
	require.Contains(t, check.GetDetail()[0].GetText(), "did not answer")
	require.Len(t, check.GetDetail()[0].GetSilent(), 1)
	require.False(t, check.GetDetail()[0].GetDiffers(), "a silent replica is no difference")
	c.start(down)
	c.ready()
	cl.verify(100)
	c.checkEqual("p")
}

// TestPreferredOwnersLead: at birth the leaders are where the placement wants
// them.
func TestPreferredOwnersLead(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

func TestPortsFileAndPages(t *testing.T) {
	t.Parallel()
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

func TestStaleAndNewerEpochs(t *testing.T) {
	t.Parallel()
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
