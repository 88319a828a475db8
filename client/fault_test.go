package client

import (
	"context"
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
)

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
			// Unknown where the deadline fell between sending and being refused.
			require.Contains(t, []sundog.Kind{sundog.Unavailable, sundog.Unknown}, sundog.KindOf(r.Err), r.Err)
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
