package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
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

// CASES 27: refused, silent, wrong-protocol and unknown hosts give a typed error
// within the deadline, and the same client works as soon as a node is there.
func TestDialDeadAddresses(t *testing.T) {
	c := newCluster(t, 1, 1)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var answered sync.WaitGroup
	answered.Go(func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	})
	defer answered.Wait()
	defer garbage.Close()
	dead := []string{deadAddr(t), silent.Addr().String(), garbage.Addr().String(), "no-such-host.invalid:7400"}

	for _, addr := range dead {
		start := time.Now()
		_, err := Dial(t.Context(), []string{addr}, Options{Timeout: 300 * time.Millisecond})
		requireKind(t, sundog.Unavailable, err)
		require.Less(t, time.Since(start), 5*time.Second, addr)
	}
	_, err = Dial(t.Context(), []string{"no-port"}, Options{})
	requireKind(t, sundog.Invalid, err)
	_, err = Dial(t.Context(), nil, Options{})
	requireKind(t, sundog.Invalid, err)

	// One living node among the dead is enough.
	cl, err := Dial(t.Context(), append(dead, c.addrs()...), Options{})
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.Pool(t.Context(), "p")
	require.NoError(t, err)

	// A client of an address where nobody is yet.
	c.nodes[0].stop()
	lazy, err := Dial(t.Context(), c.addrs(), Options{Lazy: true, Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer lazy.Close()
	_, err = lazy.Pool(t.Context(), "p")
	requireKind(t, sundog.Unavailable, err)
	c.nodes[0].restart()
	require.Eventually(t, func() bool {
		_, err := lazy.Pool(t.Context(), "p")
		return err == nil
	}, 25*time.Second, 10*time.Millisecond)
}

// CASES 28: the cluster dies while calls are under way; every call ends once with
// a typed error, and the client is back by itself with the cluster.
func TestServerDiesWithCallsInFlight(t *testing.T) {
	c := newCluster(t, 2, 4)
	cl, p := c.dial(Options{})
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	c.setHook(func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method == rpc.MethodMutate || req.Method == rpc.MethodGet {
			arrived <- struct{}{}
			<-release
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	errs := make(chan error, 20)
	for i := range 20 {
		go func() {
			var err error
			if key := fmt.Appendf(nil, "k%d", i); i%2 == 0 {
				_, err = p.Put(ctx, key, []byte("v"))
			} else {
				_, err = p.Get(ctx, key)
			}
			errs <- err
		}()
	}
	for range 20 {
		<-arrived
	}
	var stopped sync.WaitGroup
	for _, n := range c.nodes {
		stopped.Go(n.stop)
	}
	unknown := 0
	for range 10 { // the puts end at once
		err := <-errs
		requireKind(t, sundog.Unknown, err)
		unknown++
	}
	close(release)
	stopped.Wait()
	for range 10 { // the gets are tried again, to the end
		err := <-errs
		require.Contains(t, []sundog.Kind{sundog.Unavailable, sundog.Timeout}, sundog.KindOf(err), err)
	}
	require.Equal(t, 10, unknown)
	require.Equal(t, uint64(10), cl.Stats().Unknowns)

	c.setHook(nil)
	for _, n := range c.nodes {
		n.restart()
	}
	start := time.Now()
	require.Eventually(t, func() bool {
		_, err := p.Put(t.Context(), []byte("after"), nil)
		return err == nil
	}, 25*time.Second, 10*time.Millisecond)
	t.Logf("back after %v", time.Since(start))
}

func TestMutationIsNeverSentTwice(t *testing.T) {
	c := newCluster(t, 3, 8)
	_, p := c.dial(Options{})
	key := c.keyLedBy(c.nodes[1])
	var executed atomic.Int32
	c.setHook(func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method != rpc.MethodMutate {
			return nil, nil, false
		}
		executed.Add(1) // and the connection dies before the answer
		go n.stop()
		return nil, sundog.Errorf(sundog.Closed, "node is closing"), true
	})
	_, _, err := p.Incr(t.Context(), []byte(key), 1)
	requireKind(t, sundog.Unknown, err)
	require.Equal(t, int32(1), executed.Load())
	waitFor(t, c.nodes[1].done)
}

// waitFor waits until a channel is closed.
func waitFor(t *testing.T, ch chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(30 * time.Second):
		t.Fatal("not closed in time")
	}
}

func TestDeadlineAfterSendIsUnknown(t *testing.T) {
	c := newCluster(t, 1, 1)
	_, p := c.dial(Options{})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method == rpc.MethodMutate || req.Method == rpc.MethodGet {
			<-release
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := p.Put(ctx, []byte("k"), nil)
	requireKind(t, sundog.Unknown, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = p.Get(ctx, []byte("k"))
	requireKind(t, sundog.Timeout, err)

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = p.Put(ctx, []byte("k"), nil)
	requireKind(t, sundog.Closed, err)
	require.ErrorIs(t, err, context.Canceled)
}

// CASES 29: Close with calls pending, twice; no goroutine is left (goleak).
func TestCloseEndsPendingCalls(t *testing.T) {
	c := newCluster(t, 1, 1)
	cl, p := c.dial(Options{})
	arrived := make(chan struct{}, 2)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method == rpc.MethodMutate || req.Method == rpc.MethodGet {
			arrived <- struct{}{}
			<-release
		}
		return nil, nil, false
	})
	put, get := make(chan error, 1), make(chan error, 1)
	go func() { _, err := p.Put(t.Context(), []byte("k"), nil); put <- err }()
	go func() { _, err := p.Get(t.Context(), []byte("k")); get <- err }()
	<-arrived
	<-arrived
	require.NoError(t, cl.Close())
	err := <-put
	require.ErrorIs(t, err, sundog.Closed)
	require.ErrorIs(t, err, sundog.Unknown, "it was sent: whether it is done is not known")
	requireKind(t, sundog.Closed, <-get)
	require.NoError(t, cl.Close())

	_, err = p.Get(t.Context(), []byte("k"))
	requireKind(t, sundog.Closed, err)
	for _, r := range p.MultiGet(t.Context(), [][]byte{[]byte("a"), []byte("b")}) {
		requireKind(t, sundog.Closed, r.Err)
	}
	for _, err := range p.Scan(t.Context(), ScanOptions{}) {
		requireKind(t, sundog.Closed, err)
	}
}

func TestRedirectIsFollowedAndLearnt(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	key := c.keyLedBy(c.nodes[0])
	c.lead(c.partition(key), c.nodes[2])
	_, err := p.Put(t.Context(), []byte(key), nil)
	require.NoError(t, err)
	require.Equal(t, uint64(1), cl.Stats().Redirects)
	_, err = p.Get(t.Context(), []byte(key))
	require.NoError(t, err)
	require.Equal(t, uint64(1), cl.Stats().Redirects, "the leader is known now")

	c.lead(c.partition(key), c.nodes[0]) // and back
	_, err = p.Put(t.Context(), []byte(key), nil)
	require.NoError(t, err)
	require.Equal(t, uint64(2), cl.Stats().Redirects)
}

// Nodes that point at each other must not keep a call busy.
func TestRedirectLoopIsBounded(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	key := c.keyLedBy(c.nodes[0])
	c.setHook(func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method >= rpc.MethodMap {
			return nil, nil, false
		}
		e := sundog.Errorf(sundog.NotOwner, "not here")
		e.Leader, e.Epoch = n.id%3+1, 10
		return nil, e, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.Put(ctx, []byte(key), nil)
	requireKind(t, sundog.Unavailable, err)
	require.Less(t, cl.Stats().Frames, uint64(80))
}

func TestElectionIsWaitedOut(t *testing.T) {
	c := newCluster(t, 3, 8)
	_, p := c.dial(Options{})
	key := c.keyLedBy(c.nodes[0])
	healed := time.Now().Add(400 * time.Millisecond)
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method >= rpc.MethodMap || time.Now().After(healed) {
			return nil, nil, false
		}
		return nil, sundog.Errorf(sundog.NotOwner, "no leader"), true
	})
	_, err := p.Put(t.Context(), []byte(key), nil)
	require.NoError(t, err)
}

func TestStaleRefreshesTheMap(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	before := cl.Stats().MapRefreshes
	c.change(func(*ring.Map) {})
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method < rpc.MethodMap && req.Epoch < 11 {
			e := sundog.Errorf(sundog.Stale, "map epoch %d is old", req.Epoch)
			e.Epoch = 11
			return nil, e, true
		}
		return nil, nil, false
	})
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			_, err := p.Put(t.Context(), fmt.Appendf(nil, "k%d", i), nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	require.Equal(t, sundog.Epoch(11), cl.epoch())
	require.LessOrEqual(t, cl.Stats().MapRefreshes-before, uint64(3), "refreshes are shared")
	require.NotZero(t, cl.Stats().Retries.Stale)
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

// CASES 15: with one owner dead, each key has its own result and those of living
// owners are done.
func TestBatchWithOneOwnerDead(t *testing.T) {
	c := newCluster(t, 3, 8)
	_, p := c.dial(Options{})
	c.nodes[2].stop()
	var pairs []Pair
	for i := range 1000 {
		pairs = append(pairs, Pair{fmt.Appendf(nil, "key-%d", i), []byte("v")})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	dead, done := 0, 0
	for i, r := range p.MultiPut(ctx, pairs) {
		if c.leaderOf(string(pairs[i].Key)) == c.nodes[2] {
			require.Contains(t, []sundog.Kind{sundog.Unavailable, sundog.Timeout}, sundog.KindOf(r.Err), r.Err)
			require.False(t, c.has(string(pairs[i].Key)))
			dead++
		} else {
			require.NoError(t, r.Err)
			require.True(t, c.has(string(pairs[i].Key)))
			done++
		}
	}
	require.Equal(t, 1000, dead+done)
	require.NotZero(t, dead)
}

func TestOversizeReplyIsAskedForInHalves(t *testing.T) {
	c := newCluster(t, 1, 1)
	cl, p := c.dial(Options{})
	var keys [][]byte
	for i := range 10 {
		keys = append(keys, fmt.Appendf(nil, "k%d", i))
		_, err := p.Put(t.Context(), keys[i], keys[i])
		require.NoError(t, err)
	}
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method == rpc.MethodMultiGet {
			if r := must(rpc.DecodeMultiGet(req.Body)); len(r.Keys) > 3 {
				return nil, sundog.Errorf(sundog.TooLarge, "reply over the frame limit"), true
			}
		}
		return nil, nil, false
	})
	for i, r := range p.MultiGet(t.Context(), keys) {
		require.NoError(t, r.Err)
		require.Equal(t, keys[i], r.Item.Value)
	}
	require.NotZero(t, cl.Stats().Retries.Split)
}

// A read whose node falls silent is asked elsewhere inside its deadline.
func TestSilentNodeIsLeft(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, p := c.dial(Options{})
	key := c.keyLedBy(c.nodes[0])
	_, err := p.Put(t.Context(), []byte(key), []byte("v"))
	require.NoError(t, err)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	c.setHook(func(n *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if n == c.nodes[0] && req.Method == rpc.MethodGet {
			<-release
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() { _, err := p.Get(ctx, []byte(key)); result <- err }()
	require.Eventually(t, func() bool { return cl.Stats().Retries.Lost > 0 || len(result) > 0 }, 20*time.Second, 5*time.Millisecond)
	c.lead(c.partition(key), c.nodes[1])
	require.NoError(t, <-result)
}

// The client follows the nodes to new addresses.
func TestNodesMove(t *testing.T) {
	c := newCluster(t, 3, 8)
	_, p := c.dial(Options{})
	for _, n := range c.nodes[:2] {
		n.stop()
		n.serve("127.0.0.1:0")
	}
	c.change(func(m *ring.Map) {
		for i := range m.Nodes {
			m.Nodes[i].Listen = c.nodes[i].addr
		}
	})
	for i := range 20 {
		_, err := p.Put(t.Context(), fmt.Appendf(nil, "k%d", i), nil)
		require.NoError(t, err)
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	c := newCluster(t, 1, 1)
	cl, _ := c.dial(Options{})
	c.change(func(m *ring.Map) { m.Cluster = "ffffffffffffffffffffffffffffffff" })
	err := cl.refresh(t.Context())
	requireKind(t, sundog.Unavailable, err)
	require.ErrorContains(t, err, "belongs to cluster")
	_, err = Dial(t.Context(), c.addrs(), Options{Cluster: "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee", Timeout: 200 * time.Millisecond})
	requireKind(t, sundog.Unavailable, err)
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
	_, err = cl.DescribePool(ctx, "absent")
	requireKind(t, sundog.NotFound, err)
	_, err = cl.Check(ctx, "-bad")
	requireKind(t, sundog.Invalid, err)
	require.True(t, errors.Is(cl.SetPool(ctx, "p", PoolChange{MaxValue: new(int64)}), sundog.Invalid))
}
