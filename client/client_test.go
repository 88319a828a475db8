package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

func TestPutGetDelete(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	ctx := t.Context()

	v1, err := p.Put(ctx, []byte("k"), []byte("one"))
	require.NoError(t, err)
	it, err := p.Get(ctx, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, Item{Key: []byte("k"), Value: []byte("one"), Version: v1, Node: c.leaderOf("k").id, Via: ViaRPC}, it)

	_, err = p.Put(ctx, []byte("k"), nil, IfAbsent())
	requireKind(t, sundog.Exists, err)
	_, err = p.Put(ctx, []byte("k"), nil, IfVersion(sundog.Version{Clock: 1}))
	requireKind(t, sundog.Conflict, err)
	v2, err := p.Put(ctx, []byte("k"), nil, IfVersion(v1), TTL(90*time.Microsecond+time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, v2.Compare(v1))
	it, err = p.Get(ctx, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, []byte{}, it.Value, "an empty value is a value")
	left, ok := it.TTL(time.Now())
	require.True(t, ok)
	require.InDelta(t, time.Hour, left, float64(time.Minute))

	n, _, err := p.Incr(ctx, []byte("counter"), -7)
	require.NoError(t, err)
	require.Equal(t, int64(-7), n)

	_, err = p.Delete(ctx, []byte("k"), IfVersion(v1))
	requireKind(t, sundog.Conflict, err)
	_, err = p.Delete(ctx, []byte("k"))
	require.NoError(t, err)
	_, err = p.Delete(ctx, []byte("k"))
	requireKind(t, sundog.NotFound, err)
	_, err = p.Get(ctx, []byte("k"))
	requireKind(t, sundog.NotFound, err)

	s := cl.Stats()
	require.Equal(t, [4]uint64{3, 4, 3, 1}, [4]uint64{s.Gets, s.Puts, s.Deletes, s.Incrs})
	require.Equal(t, uint64(11), s.Frames, "the keys are hashed straight to their owners")
	require.Zero(t, s.Redirects)
	require.Zero(t, s.Retries)
}

func TestBadInputIsRefusedLocally(t *testing.T) {
	c := newCluster(t, 1, 1)
	cl, p := c.dial(Options{})
	ctx := t.Context()
	before := cl.Stats().Frames

	_, err := p.Put(ctx, nil, nil)
	requireKind(t, sundog.Invalid, err)
	_, err = p.Get(ctx, make([]byte, sundog.MaxKey+1))
	requireKind(t, sundog.Invalid, err)
	_, err = p.Put(ctx, []byte("k"), make([]byte, sundog.MaxValue+1))
	requireKind(t, sundog.TooLarge, err)
	require.ErrorContains(t, err, fmt.Sprint(sundog.MaxValue+1))
	require.ErrorContains(t, err, fmt.Sprint(sundog.MaxValue))
	require.Equal(t, int64(sundog.MaxValue), sundog.AsError(err).Limit)
	_, err = p.Put(ctx, []byte("k"), nil, IfAbsent(), IfVersion(sundog.Version{Clock: 1}))
	requireKind(t, sundog.Invalid, err)
	_, err = p.Put(ctx, []byte("k"), nil, TTL(-1))
	requireKind(t, sundog.Invalid, err)
	_, err = p.Delete(ctx, []byte("k"), IfAbsent())
	requireKind(t, sundog.Invalid, err)
	require.Equal(t, before, cl.Stats().Frames, "nothing of it was sent")

	res := p.MultiPut(ctx, []Pair{{[]byte("a"), []byte("1")}, {nil, nil}, {[]byte("b"), make([]byte, sundog.MaxValue+1)}})
	require.NoError(t, res[0].Err)
	requireKind(t, sundog.Invalid, res[1].Err)
	requireKind(t, sundog.TooLarge, res[2].Err)
}

// CASES 37: a fresh client reads all of a store that holds data already, lists
// it and knows its size.
func TestFreshClientSeesAll(t *testing.T) {
	c := newCluster(t, 3, 8)
	ctx := t.Context()
	_, p := c.dial(Options{})
	var pairs []Pair
	for i := range 300 {
		pairs = append(pairs, Pair{fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value-%d", i)})
	}
	for _, r := range p.MultiPut(ctx, pairs) {
		require.NoError(t, r.Err)
	}

	fresh, p2 := c.dial(Options{})
	keys := make([][]byte, len(pairs))
	for i := range pairs {
		keys[i] = pairs[i].Key
	}
	for i, r := range p2.MultiGet(ctx, keys) {
		require.NoError(t, r.Err)
		require.Equal(t, pairs[i].Value, r.Item.Value, "results come in the order of keys")
	}
	seen := map[string]string{}
	for it, err := range p2.Scan(ctx, ScanOptions{}) {
		require.NoError(t, err)
		seen[string(it.Key)] = string(it.Value)
	}
	require.Len(t, seen, len(pairs))
	require.Equal(t, "value-299", seen["key-299"])
	st, err := fresh.DescribePool(ctx, "p")
	require.NoError(t, err)
	require.Equal(t, int64(len(pairs)), st.Keys)
	require.Equal(t, int64(77), st.Used)

	count := 0
	for it, err := range p2.Scan(ctx, ScanOptions{Prefix: []byte("key-29"), KeysOnly: true}) {
		require.NoError(t, err)
		require.Nil(t, it.Value)
		count++
	}
	require.Equal(t, 11, count)
	count = 0
	for _, err := range p2.Scan(ctx, ScanOptions{Limit: 25}) {
		require.NoError(t, err)
		count++
	}
	require.Equal(t, 25, count)
	deleted := p2.MultiDelete(ctx, append(keys[:10:10], []byte("absent")))
	for _, r := range deleted[:10] {
		require.NoError(t, r.Err)
	}
	requireKind(t, sundog.NotFound, deleted[10].Err)
}

func TestDeletedPoolIsNotFound(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	other, _ := c.dial(Options{})
	require.NoError(t, other.DeletePool(t.Context(), "p"))
	_, err := other.Pool(t.Context(), "p")
	requireKind(t, sundog.NotFound, err)
	_, err = p.Put(t.Context(), []byte("k"), nil)
	requireKind(t, sundog.NotFound, err)
	_, err = p.Get(t.Context(), []byte("k"))
	requireKind(t, sundog.NotFound, err)
	require.Len(t, must(cl.Pools(t.Context())), 0)

	info, err := other.CreatePool(t.Context(), "p", sundog.PoolSpec{Consistency: sundog.Strong})
	require.NoError(t, err)
	require.NotEqual(t, p.ID(), info.ID)
	_, err = p.Get(t.Context(), []byte("k"))
	requireKind(t, sundog.NotFound, err)
	_, err = other.CreatePool(t.Context(), "p", sundog.PoolSpec{Consistency: sundog.Strong})
	requireKind(t, sundog.Exists, err)
	_, err = other.CreatePool(t.Context(), "q", sundog.PoolSpec{Consistency: sundog.Eventual})
	requireKind(t, sundog.Invalid, err)
}

// A node whose map lags must not make a new pool unknown: before NotFound the
// voters of the catalog are asked.
func TestLaggingNodeDoesNotHideAPool(t *testing.T) {
	c := newCluster(t, 3, 8)
	old, err := c.m.Marshal()
	require.NoError(t, err)
	other, _ := c.dial(Options{})
	_, err = other.CreatePool(t.Context(), "new", sundog.PoolSpec{Consistency: sundog.Strong})
	require.NoError(t, err)
	c.setHook(func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		switch {
		case n == c.nodes[2]:
			return nil, nil, false
		case req.Method == rpc.MethodMap:
			return must(rpc.Marshal(&rpcpb.MapReply{Epoch: 10, Map: old})), nil, true
		case req.Method == rpc.MethodPoolDescribe && req.Epoch < 11:
			return nil, sundog.Errorf(sundog.NotFound, "no such pool"), true
		}
		return nil, nil, false
	})
	for range 5 {
		cl, _ := c.dial(Options{})
		_, err = cl.Pool(t.Context(), "new")
		require.NoError(t, err)
		_, err = cl.Pool(t.Context(), "absent")
		requireKind(t, sundog.NotFound, err)
		cl, _ = c.dial(Options{})
		_, err = cl.DescribePool(t.Context(), "new")
		require.NoError(t, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAdmin(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, _ := c.dial(Options{})
	ctx := t.Context()
	nodes, err := cl.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	require.Equal(t, NodeStatus{ID: 1, Listen: c.nodes[0].addr, State: "alive", Replicas: 4, Leaders: 2, SafeToStop: true}, nodes[0])
	parts, err := cl.Partitions(ctx)
	require.NoError(t, err)
	require.Len(t, parts, 8)
	require.Equal(t, PartitionStatus{Partition: 1, Leader: 2, Replicas: []sundog.NodeID{1, 2, 3}, Term: 2, Applied: 9}, parts[1])
	r, err := cl.Check(ctx, "p")
	require.NoError(t, err)
	require.False(t, r.Equal)
	require.Equal(t, "partition 3: node 2 differs", r.Details[0].String())
	require.True(t, r.Differs())
	require.Equal(t, []sundog.NodeID{7}, r.Details[0].Silent)
	_, err = cl.DescribePool(ctx, "absent")
	requireKind(t, sundog.NotFound, err)
	_, err = cl.Check(ctx, "-bad")
	requireKind(t, sundog.Invalid, err)
	require.True(t, errors.Is(cl.SetPool(ctx, "p", PoolChange{MaxValue: new(int64)}), sundog.Invalid))
}
