package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience of the tests: at least five times what is expected.
const testDeadline = 60 * time.Second

func testTimings() sundog.Timings {
	return sundog.Timings{Heartbeat: 400 * time.Millisecond, Lease: 200 * time.Millisecond}
}

// cluster is a handful of nodes in this process, on loopback.
type cluster struct {
	t     *testing.T
	ctx   context.Context
	dirs  []string
	nodes []*Node // nil where the node is down
	edit  func(i int, c *Config)
}

func newCluster(t *testing.T, size int, edit func(i int, c *Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, ctx: t.Context(), edit: edit}
	for range size {
		c.dirs = append(c.dirs, t.TempDir())
	}
	c.nodes = make([]*Node, size)
	t.Cleanup(c.close)
	return c
}

func (c *cluster) config(i int) Config {
	cfg := Config{
		Data: c.dirs[i], Listen: "127.0.0.1:0", Gossip: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		BootstrapExpect: len(c.dirs), Partitions: 4, Memory: 64 << 20,
		Timings: testTimings(), Pace: membership.Paced(200 * time.Millisecond),
	}
	if os.Getenv("SUNDOG_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, n := range c.nodes {
		if n != nil {
			cfg.Join = append(cfg.Join, n.Addrs().Gossip)
		}
	}
	if c.edit != nil {
		c.edit(i, &cfg)
	}
	return cfg
}

func (c *cluster) start(i int) *Node {
	c.t.Helper()
	n, err := c.tryStart(i)
	require.NoError(c.t, err)
	return n
}

func (c *cluster) tryStart(i int) (*Node, error) {
	n, err := Open(c.ctx, c.config(i))
	if err == nil {
		c.nodes[i] = n
	}
	return n, err
}

func (c *cluster) startAll() {
	c.t.Helper()
	for i := range c.nodes {
		c.start(i)
	}
}

func (c *cluster) stop(i int) {
	c.t.Helper()
	n := c.nodes[i]
	c.nodes[i] = nil
	require.NoError(c.t, n.Close())
}

func (c *cluster) kill(i int) {
	c.t.Helper()
	n := c.nodes[i]
	c.nodes[i] = nil
	require.NoError(c.t, n.kill())
}

func (c *cluster) close() {
	var all sync.WaitGroup
	for _, n := range c.nodes {
		if n != nil {
			all.Go(func() {
				if err := n.kill(); err != nil {
					c.t.Errorf("close: %v", err)
				}
			})
		}
	}
	all.Wait()
}

// ready waits until all nodes that run are ready.
func (c *cluster) ready() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, testDeadline)
	defer cancel()
	for i, n := range c.nodes {
		if n != nil {
			require.NoError(c.t, n.Wait(ctx), "node %d", i)
		}
	}
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	require.Eventually(c.t, ok, testDeadline, 20*time.Millisecond, what)
}

// conn is a client's connection to a node.
func (c *cluster) conn(n *Node) *rpc.Conn {
	c.t.Helper()
	conn, err := rpc.Dial(c.ctx, n.Addrs().Listen, rpc.DialConfig{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c *cluster) call(n *Node, m rpc.Method, req, reply proto.Message) error {
	return c.callWithin(testDeadline, n, m, req, reply)
}

func (c *cluster) callWithin(d time.Duration, n *Node, m rpc.Method, req, reply proto.Message) error {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	conn, err := rpc.Dial(ctx, n.Addrs().Listen, rpc.DialConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = rpc.Invoke(ctx, conn, m, 0, req, reply)
	return err
}

func (c *cluster) createPool(n *Node, name string, replicas int) error {
	return c.call(n, rpc.MethodPoolCreate, &rpcpb.PoolCreateRequest{
		Name: name, Spec: &rpcpb.PoolSpec{Consistency: uint32(sundog.Strong), Replicas: uint32(replicas)},
	}, &rpcpb.PoolCreateReply{})
}

// someNode returns a node that runs.
func (c *cluster) someNode() *Node {
	for _, n := range c.nodes {
		if n != nil {
			return n
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

// view is the newest map that a running node has.
func (c *cluster) view() *ring.Map {
	var best *ring.Map
	for _, n := range c.nodes {
		if n != nil {
			if m := n.atlas.Map(); m != nil && (best == nil || m.Epoch > best.Epoch) {
				best = m
			}
		}
	}
	require.NotNil(c.t, best)
	return best
}

// client is a small routing client: it tries the node that is said to lead, then
// all others, until the deadline.
type client struct {
	c     *cluster
	conns *rpc.Pool
	pool  sundog.PoolID
}

func (c *cluster) client(pool string) *client {
	c.t.Helper()
	p, ok := c.view().PoolByName(pool)
	require.True(c.t, ok)
	cl := &client{c: c, conns: rpc.NewPool(rpc.DialConfig{}), pool: p.ID}
	c.t.Cleanup(func() { _ = cl.conns.Close() })
	return cl
}

// do sends a request to nodes in turn until one executes it. Reads and puts of
// these tests may be repeated.
func (cl *client) do(method rpc.Method, body func() rpc.Body, answered func([]byte) error) error {
	ctx, cancel := context.WithTimeout(cl.c.ctx, testDeadline)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		for _, n := range cl.c.nodes {
			if n == nil {
				continue
			}
			conn, err := cl.conns.Get(ctx, n.Addrs().Listen)
			if err == nil {
				var reply rpc.Reply
				attempt, stop := context.WithTimeout(ctx, 3*time.Second)
				reply, err = conn.Call(attempt, method, cl.c.view().Epoch, body())
				stop()
				if err == nil {
					err = answered(reply.Body)
				}
			}
			switch sundog.KindOf(err) {
			case sundog.NotOwner, sundog.Unavailable, sundog.Stale, sundog.Timeout, sundog.Unknown:
				last = err
				continue
			}
			return err
		}
		wait(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("gave up: %w", last)
}

func (cl *client) put(key, value string) error {
	op := rpc.Op{Code: rpc.OpPut, Pool: cl.pool, Key: []byte(key), Value: []byte(value)}
	return cl.do(rpc.MethodMutate, func() rpc.Body { return rpc.EncodeMutate([]rpc.Op{op}) }, func(b []byte) error {
		results, err := rpc.DecodeResults(b)
		if err != nil {
			return err
		}
		if results[0].Err != nil {
			return results[0].Err
		}
		return nil
	})
}

func (cl *client) get(key string) (string, error) {
	var value string
	err := cl.do(rpc.MethodGet, func() rpc.Body {
		return rpc.EncodeGet(rpc.GetRequest{Pool: cl.pool, Key: []byte(key)})
	}, func(b []byte) error {
		item, err := rpc.DecodeItem(b)
		value = string(item.Value)
		return err
	})
	return value, err
}

// fill writes n pairs; verify reads them back.
func (cl *client) fill(from, n int) {
	cl.c.t.Helper()
	for i := from; i < from+n; i++ {
		require.NoError(cl.c.t, cl.put(fmt.Sprintf("key-%d", i), fmt.Sprintf("value-%d", i)))
	}
}

func (cl *client) verify(n int) {
	cl.c.t.Helper()
	for i := range n {
		v, err := cl.get(fmt.Sprintf("key-%d", i))
		require.NoError(cl.c.t, err)
		require.Equal(cl.c.t, fmt.Sprintf("value-%d", i), v)
	}
}

// leaderOf returns the index of the node that leads a partition.
func (c *cluster) leaderOf(p sundog.Partition) int {
	c.t.Helper()
	at := -1
	c.eventually("a leader", func() bool {
		for i, n := range c.nodes {
			if n != nil && n.hosting.get(p) != nil && n.hosting.get(p).Group().Status().Leading {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

// checkEqual asserts that all replicas of the pool are equal, once they are all up.
func (c *cluster) checkEqual(pool string) {
	c.t.Helper()
	var reply rpcpb.CheckReply
	require.NoError(c.t, c.call(c.someNode(), rpc.MethodCheck, &rpcpb.CheckRequest{Pool: pool}, &reply))
	require.True(c.t, reply.GetEqual(), "%v", reply.GetDetail())
}

// copyDir clones a data directory, lock file left out.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.Walk(from, func(path string, info os.FileInfo, err error) error {
		if err != nil || strings.HasSuffix(path, string(filepath.Separator)+"lock") {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	}))
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(data)
}
