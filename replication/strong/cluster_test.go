package strong

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

// patience is many times what anything here takes.
const patience = 30 * time.Second

// cluster is three replicas of one partition in this process, over pipes.
type cluster struct {
	t     testing.TB
	hosts []*host
	m     *ring.Map
	tune  func(*raftgroup.Config)
	stats *prometheus.Registry
	count *raftgroup.Metrics

	mu    sync.Mutex // guards the rest
	conns map[net.Conn][2]sundog.NodeID
	cut   map[sundog.NodeID]bool // reaches nobody
}

// host is one node's part; partition is nil while it is down.
type host struct {
	c    *cluster
	id   sundog.NodeID
	dir  string
	self string

	mu        sync.Mutex // guards the rest
	partition *Partition
	store     *raftgroup.Store
	mux       *raftgroup.Mux
}

func newCluster(t testing.TB, tune func(*raftgroup.Config), pools ...ring.Pool) *cluster {
	c := &cluster{t: t, tune: tune, conns: map[net.Conn][2]sundog.NodeID{}, cut: map[sundog.NodeID]bool{}}
	c.m = &ring.Map{Epoch: 10, Partitions: 4, Pools: pools}
	c.stats = prometheus.NewRegistry()
	var err error
	c.count, err = raftgroup.NewMetrics(c.stats)
	require.NoError(t, err)
	var servers []string
	for i := range 3 {
		id := sundog.NodeID(i + 1)
		self := ring.Replica{Node: id, Incarnation: 1}.ServerID()
		c.hosts = append(c.hosts, &host{c: c, id: id, dir: t.TempDir(), self: self})
		servers = append(servers, self)
	}
	t.Cleanup(func() {
		for _, h := range c.hosts {
			h.down()
		}
	})
	for _, h := range c.hosts {
		h.up()
		require.NoError(t, h.now().Group().Bootstrap(servers))
	}
	return c
}

// dial connects from one host's mux to another's, as the nodes' rpc would.
func (c *cluster) dial(from, to sundog.NodeID, lane string) (net.Conn, error) {
	h := c.hosts[to-1]
	h.mu.Lock()
	mux := h.mux
	h.mu.Unlock()
	here, there := net.Pipe()
	c.mu.Lock()
	refused := mux == nil || c.cut[from] || c.cut[to]
	if !refused {
		c.conns[here], c.conns[there] = [2]sundog.NodeID{from, to}, [2]sundog.NodeID{from, to}
	}
	c.mu.Unlock()
	if refused {
		return nil, fmt.Errorf("node %d does not reach node %d", from, to)
	}
	if err := mux.Accept(there, from, lane); err != nil {
		there.Close()
		here.Close()
		return nil, err
	}
	return here, nil
}

// isolate cuts a host off, or lets it back.
func (c *cluster) isolate(id sundog.NodeID, off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[id] = off
	for conn, ends := range c.conns {
		if off && (ends[0] == id || ends[1] == id) {
			conn.Close()
			delete(c.conns, conn)
		}
	}
}

func (h *host) now() *Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.partition
}

// up starts the host on what its directory holds.
func (h *host) up() {
	t := h.c.t
	store, err := raftgroup.OpenStore(filepath.Join(h.dir, "raft.db"), raftgroup.StoreConfig{})
	require.NoError(t, err)
	mux := raftgroup.NewMux(raftgroup.MuxConfig{Self: h.id, Metrics: h.c.count, Dial: func(_ context.Context, node sundog.NodeID, lane string) (net.Conn, error) {
		return h.c.dial(h.id, node, lane)
	}})
	gc := raftgroup.Config{
		Self: h.self, Store: store, Mux: mux, SnapshotDir: filepath.Join(h.dir, "snapshots"),
		Metrics: h.c.count,
		Timings: sundog.Timings{Heartbeat: 200 * time.Millisecond, Lease: 100 * time.Millisecond},
	}
	if h.c.tune != nil {
		h.c.tune(&gc)
	}
	p, err := Open(Config{
		Partition: 3, Group: gc, Arenas: newArenas(testMemory),
		Map: func() *ring.Map { return h.c.m }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	h.mu.Lock()
	h.partition, h.store, h.mux = p, store, mux
	h.mu.Unlock()
}

// down stops the host from one moment to the next: first nobody hears it.
func (h *host) down() {
	h.c.isolate(h.id, true)
	h.mu.Lock()
	p, store, mux := h.partition, h.store, h.mux
	h.partition, h.store, h.mux = nil, nil, nil
	h.mu.Unlock()
	if p != nil {
		require.NoError(h.c.t, p.Close())
		require.NoError(h.c.t, mux.Close())
		require.NoError(h.c.t, store.Close())
	}
	h.c.isolate(h.id, false)
}

// installs is how many snapshots followers were brought up by.
func (c *cluster) installs() (n float64) {
	all, err := c.stats.Gather()
	require.NoError(c.t, err)
	for _, f := range all {
		if f.GetName() == "sundog_raft_snapshot_installs_total" {
			n += f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

// leader waits for a replica that leads and takes writes.
func (c *cluster) leader() *host {
	var leader *host
	require.Eventually(c.t, func() bool {
		for _, h := range c.hosts {
			if p := h.now(); p != nil {
				if r := p.reign.Load(); r != nil && r.isOpen() && p.Status().Leading {
					leader = h
					return true
				}
			}
		}
		return false
	}, patience, 5*time.Millisecond, "a leader")
	return leader
}

// mutate runs one op at whoever leads, until it has an outcome that is not "ask
// another" or "not now".
func (c *cluster) mutate(ctx context.Context, start int, op rpc.Op) rpc.OpResult {
	for i := start; ; i++ {
		res := rpc.OpResult{Err: sundog.Errorf(sundog.Unavailable, "down")}
		if p := c.hosts[i%3].now(); p != nil {
			res = p.Mutate(ctx, []rpc.Op{op})[0]
		}
		if !again(ctx, res.Err) {
			return res
		}
	}
}

// sure repeats an op that may be repeated until it was surely executed, and
// returns the version it has then.
func (c *cluster) sure(ctx context.Context, op rpc.Op) sundog.Version {
	for {
		res := c.mutate(ctx, 0, op)
		if res.Err == nil {
			return res.Version
		}
		require.ErrorIs(c.t, res.Err, sundog.Unknown)
	}
}

func (c *cluster) get(ctx context.Context, start int, pool sundog.PoolID, key string) rpc.GetResult {
	for i := start; ; i++ {
		res := rpc.GetResult{Err: sundog.Errorf(sundog.Unavailable, "down")}
		if p := c.hosts[i%3].now(); p != nil {
			res = p.Get(ctx, pool, [][]byte{[]byte(key)})[0]
		}
		if !again(ctx, res.Err) {
			return res
		}
	}
}

// again reports whether the error is worth another try, and waits a little.
func again(ctx context.Context, err *sundog.Error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	switch err.Kind {
	case sundog.NotOwner, sundog.Unavailable, sundog.Stale, sundog.Closed, sundog.Timeout:
		select {
		case <-time.After(2 * time.Millisecond):
			return true
		case <-ctx.Done():
		}
	}
	return false
}

// checkEqual has all replicas hash a pool and compares. A check is asked for
// again where a replica has no answer: it may have been restored meanwhile.
func (c *cluster) checkEqual(ctx context.Context, pool sundog.PoolID) replication.CheckSum {
	for {
		require.NoError(c.t, ctx.Err())
		id, err := c.leader().now().Check(ctx, pool)
		if err != nil {
			continue
		}
		var sums []replication.CheckSum
		for until := time.Now().Add(patience / 6); len(sums) < 3 && time.Now().Before(until); {
			sums = sums[:0]
			for _, h := range c.hosts {
				if sum, ok := h.now().CheckResult(id); ok {
					sums = append(sums, sum)
				}
			}
			again(ctx, sundog.Errorf(sundog.Unavailable, "wait"))
		}
		if len(sums) < 3 {
			continue
		}
		require.Equal(c.t, sums[0], sums[1])
		require.Equal(c.t, sums[0], sums[2])
		return sums[0]
	}
}
