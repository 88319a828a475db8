package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

const fakeCluster = "0123456789abcdef0123456789abcdef"

// cluster is a fake cluster: real rpc servers over one store, with a leader for
// each partition and a hook to fail in any way.
type cluster struct {
	t     *testing.T
	nodes []*fakeNode

	mu      sync.Mutex // guards all below
	m       *ring.Map
	leaders []sundog.NodeID
	store   map[string]rpc.ScanItem // by key, of the pool "p" (id 1)
	clock   sundog.Clock
	hook    func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool)
}

type fakeNode struct {
	c      *cluster
	id     sundog.NodeID
	addr   string
	server *rpc.Server
	done   chan struct{} // closed when server.Serve returned
	served atomic.Int64  // hot requests
}

// newCluster starts n nodes and checks for leaks when the test ends.
func newCluster(t *testing.T, n, partitions int) *cluster {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	c := &cluster{t: t, store: map[string]rpc.ScanItem{}, clock: 100}
	c.m = &ring.Map{
		Cluster: fakeCluster, Epoch: 10, Partitions: partitions, Replicas: n, Timings: sundog.DefaultTimings(), Birth: 5, NextPool: 2,
		Pools: []ring.Pool{{ID: 1, Name: "p", Spec: sundog.PoolSpec{Consistency: sundog.Strong, Replicas: n}.WithDefaults(), Created: 5}},
	}
	var owners ring.Replicas
	for i := range n {
		node := &fakeNode{c: c, id: sundog.NodeID(i + 1)}
		node.serve("127.0.0.1:0")
		c.nodes = append(c.nodes, node)
		c.m.Nodes = append(c.m.Nodes, ring.Node{ID: node.id, Listen: node.addr, Gossip: "127.0.0.1:1", HTTP: "127.0.0.1:2", Weight: 1, Boot: 1, Catalog: ring.Voter})
		c.m.Founders = append(c.m.Founders, node.id)
		owners = append(owners, ring.Replica{Node: node.id, Incarnation: 1})
	}
	for p := range partitions {
		k := p % n
		c.m.Placement = append(c.m.Placement, slices.Concat(owners[k:], owners[:k]))
		c.leaders = append(c.leaders, owners[k].Node)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.stop()
		}
	})
	return c
}

func (n *fakeNode) serve(addr string) {
	n.server = rpc.NewServer(rpc.ServerConfig{
		Handler:  rpc.HandlerFunc(n.handle),
		Epoch:    func() sundog.Epoch { n.c.mu.Lock(); defer n.c.mu.Unlock(); return n.c.m.Epoch },
		Identity: func() rpc.Identity { return rpc.Identity{Node: n.id, Boot: 1, Nonce: 1, Cluster: fakeCluster} },
	})
	var l net.Listener
	require.Eventually(n.c.t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	n.addr = l.Addr().String()
	server := n.server
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	n.done = done
}

func (n *fakeNode) stop() {
	_ = n.server.Close()
	<-n.done
}

// restart serves again at the same address.
func (n *fakeNode) restart() { n.serve(n.addr) }

func (c *cluster) addrs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.addr)
	}
	return out
}

// setHook makes f see every request first; it answers where it returns true.
func (c *cluster) setHook(f func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = f
}

// change makes a new map.
func (c *cluster) change(f func(m *ring.Map)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.m.Clone()
	m.Epoch++
	f(m)
	c.m = m
}

func (c *cluster) lead(p sundog.Partition, n *fakeNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders[p] = n.id
}

func (c *cluster) partition(key string) sundog.Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.PartitionOf([]byte(key))
}

// leaderOf is the node that leads the key's partition.
func (c *cluster) leaderOf(key string) *fakeNode {
	p := c.partition(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.leaders[p]-1]
}

func (c *cluster) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.store[key]
	return ok
}

func (n *fakeNode) handle(_ context.Context, req *rpc.Request) (rpc.Body, error) {
	c := n.c
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook != nil {
		if body, err, done := hook(n, req); done {
			return body, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.Method < rpc.MethodMap {
		n.served.Add(1)
	}
	switch req.Method {
	case rpc.MethodGet:
		r, err := rpc.DecodeGet(req.Body)
		if err != nil {
			return nil, err
		}
		res := n.get(r.Pool, r.Key)
		if res.Err != nil {
			return nil, res.Err
		}
		return rpc.EncodeItem(res.Item), nil
	case rpc.MethodMultiGet:
		r, err := rpc.DecodeMultiGet(req.Body)
		if err != nil {
			return nil, err
		}
		out := make([]rpc.GetResult, len(r.Keys))
		for i, k := range r.Keys {
			out[i] = n.get(r.Pool, k)
		}
		return rpc.EncodeGetResults(out), nil
	case rpc.MethodMutate:
		ops, err := rpc.DecodeMutate(req.Body)
		if err != nil {
			return nil, err
		}
		out := make([]rpc.OpResult, len(ops))
		for i := range ops {
			out[i] = n.mutate(&ops[i])
		}
		return rpc.EncodeResults(out), nil
	case rpc.MethodScan:
		r, err := rpc.DecodeScan(req.Body)
		if err != nil {
			return nil, err
		}
		return n.scan(r)
	}
	return n.control(req)
}

// refuse is the error of a request that does not belong here; nil if it does.
func (n *fakeNode) refuse(pool sundog.PoolID, p sundog.Partition) *sundog.Error {
	if leader := n.c.leaders[p]; leader != n.id {
		e := sundog.Errorf(sundog.NotOwner, "partition %d", p)
		e.Leader, e.Epoch = leader, n.c.m.Epoch
		return e
	}
	if _, ok := n.c.m.Pool(pool); !ok {
		e := sundog.Errorf(sundog.Stale, "pool %d", pool)
		e.Epoch = n.c.m.Epoch
		return e
	}
	return nil
}

func (n *fakeNode) get(pool sundog.PoolID, key []byte) rpc.GetResult {
	if err := n.refuse(pool, n.c.m.PartitionOf(key)); err != nil {
		return rpc.GetResult{Err: err}
	}
	it, ok := n.c.store[string(key)]
	if !ok {
		return rpc.GetResult{Err: sundog.Errorf(sundog.NotFound, "no such key")}
	}
	return rpc.GetResult{Item: rpc.Item{Version: it.Version, Deadline: it.Deadline, Value: it.Value}}
}

func (n *fakeNode) mutate(op *rpc.Op) rpc.OpResult {
	c := n.c
	if err := n.refuse(op.Pool, c.m.PartitionOf(op.Key)); err != nil {
		return rpc.OpResult{Err: err}
	}
	key := string(op.Key)
	old, there := c.store[key]
	switch {
	case op.Cond == rpc.CondAbsent && there:
		return rpc.OpResult{Err: sundog.Errorf(sundog.Exists, "it is there")}
	case op.Cond == rpc.CondVersion && old.Version != op.IfVersion:
		return rpc.OpResult{Err: sundog.Errorf(sundog.Conflict, "version %v", old.Version)}
	case op.Code == rpc.OpDelete && !there:
		return rpc.OpResult{Err: sundog.Errorf(sundog.NotFound, "no such key")}
	}
	c.clock++
	it := rpc.ScanItem{Key: bytes.Clone(op.Key), Version: sundog.Version{Clock: c.clock}, Value: bytes.Clone(op.Value)}
	if op.TTL > 0 {
		it.Deadline = time.Now().Add(op.TTL).UnixMilli()
	}
	res := rpc.OpResult{Version: it.Version}
	if op.Code == rpc.OpIncr {
		if there {
			res.Int = int64(binary.LittleEndian.Uint64(old.Value))
		}
		res.Int += op.Delta
		it.Value = binary.LittleEndian.AppendUint64(nil, uint64(res.Int))
	}
	if op.Code == rpc.OpDelete {
		delete(c.store, key)
	} else {
		c.store[key] = it
	}
	return res
}

// scan gives at most 7 items a page, in key order, with a rank as the cursor.
func (n *fakeNode) scan(r rpc.ScanRequest) (rpc.Body, error) {
	if err := n.refuse(r.Pool, r.Partition); err != nil {
		return nil, err
	}
	var all []rpc.ScanItem
	for _, it := range n.c.store {
		if n.c.m.PartitionOf(it.Key) == r.Partition {
			if r.KeysOnly {
				it.Value = nil
			}
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b rpc.ScanItem) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	from := min(int(r.Cursor), len(all))
	to := min(from+min(r.Limit, 7), len(all))
	reply := rpc.ScanReply{}
	for _, it := range all[from:to] {
		if bytes.HasPrefix(it.Key, r.Prefix) {
			reply.Items = append(reply.Items, it)
		}
	}
	if to < len(all) {
		reply.Next = uint64(to)
	}
	return rpc.EncodeScanReply(reply), nil
}

func (n *fakeNode) control(req *rpc.Request) (rpc.Body, error) {
	c := n.c
	switch req.Method {
	case rpc.MethodMap:
		var r rpcpb.MapRequest
		if err := rpc.Unmarshal(req.Body, &r); err != nil {
			return nil, err
		}
		reply := &rpcpb.MapReply{Epoch: uint64(c.m.Epoch)}
		if r.GetHaveEpoch() < uint64(c.m.Epoch) {
			b, err := c.m.Marshal()
			if err != nil {
				return nil, err
			}
			reply.Map = b
		}
		return rpc.Marshal(reply)
	case rpc.MethodPoolCreate:
		var r rpcpb.PoolCreateRequest
		if err := rpc.Unmarshal(req.Body, &r); err != nil {
			return nil, err
		}
		m := c.m.Clone()
		if _, ok := m.PoolByName(r.GetName()); ok {
			return nil, sundog.Errorf(sundog.Exists, "pool %q exists", r.GetName())
		}
		m.Epoch++
		m.Pools = append(m.Pools, ring.Pool{ID: m.NextPool, Name: r.GetName(), Spec: rpc.SpecOf(r.GetSpec()).WithDefaults(), Created: m.Epoch})
		m.NextPool++
		c.m = m
		return rpc.Marshal(&rpcpb.PoolCreateReply{Id: uint64(m.NextPool - 1), Epoch: uint64(m.Epoch)})
	case rpc.MethodPoolDelete:
		var r rpcpb.PoolDeleteRequest
		if err := rpc.Unmarshal(req.Body, &r); err != nil {
			return nil, err
		}
		m := c.m.Clone()
		m.Epoch++
		m.Pools = slices.DeleteFunc(m.Pools, func(p ring.Pool) bool { return p.Name == r.GetName() })
		c.m = m
		return rpc.Marshal(&rpcpb.PoolDeleteReply{Epoch: uint64(m.Epoch)})
	case rpc.MethodNodes:
		reply := &rpcpb.NodesReply{}
		for _, n := range c.m.Nodes {
			reply.Nodes = append(reply.Nodes, &rpcpb.NodeInfo{Id: uint64(n.ID), Listen: n.Listen, State: "alive", Replicas: 4, Leaders: 2, SafeToStop: true})
		}
		return rpc.Marshal(reply)
	case rpc.MethodPartitions:
		reply := &rpcpb.PartitionsReply{}
		for p, leader := range c.leaders {
			reply.Partitions = append(reply.Partitions, &rpcpb.PartitionInfo{Partition: uint32(p), Leader: uint64(leader), Replicas: []uint64{1, 2, 3}, Term: 2, Applied: 9})
		}
		return rpc.Marshal(reply)
	case rpc.MethodCheck:
		return rpc.Marshal(&rpcpb.CheckReply{Partitions: uint32(c.m.Partitions), Equal: false, Keys: uint64(len(c.store)), Detail: []*rpcpb.CheckDetail{{Partition: 3, Text: "node 2 differs", Differs: true, Silent: []uint64{7}}}})
	case rpc.MethodPoolDescribe:
		var r rpcpb.PoolDescribeRequest
		if err := rpc.Unmarshal(req.Body, &r); err != nil {
			return nil, err
		}
		p, ok := c.m.PoolByName(r.GetName())
		if !ok {
			return nil, sundog.Errorf(sundog.NotFound, "no pool %q", r.GetName())
		}
		return rpc.Marshal(&rpcpb.PoolDescribeReply{Id: uint64(p.ID), Name: p.Name, Spec: rpc.SpecMessage(p.Spec), Keys: int64(len(c.store)), Used: 77, PartitionsReady: 8, Partitions: 8})
	}
	return nil, sundog.Errorf(sundog.Invalid, "method %v", req.Method)
}

// dial makes a client that is closed when the test ends.
func (c *cluster) dial(opts Options) (*Client, *Pool) {
	c.t.Helper()
	cl, err := Dial(c.t.Context(), c.addrs(), opts)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = cl.Close() })
	p, err := cl.Pool(c.t.Context(), "p")
	require.NoError(c.t, err)
	return cl, p
}

// deadAddr is an address where nobody listens.
func deadAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// FakePool is the pool "p" of a fake cluster, for tests outside of this package.
func FakePool(t *testing.T) *Pool {
	_, p := newCluster(t, 3, 8).dial(Options{})
	return p
}

// keyLedBy finds a key whose partition the node leads.
func (c *cluster) keyLedBy(n *fakeNode) string {
	for i := 0; ; i++ {
		if k := fmt.Sprintf("key-%d", i); c.leaderOf(k) == n {
			return k
		}
	}
}

func requireKind(t *testing.T, kind sundog.Kind, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind, sundog.KindOf(err), strings.TrimSpace(err.Error()))
}
