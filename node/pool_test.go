package node

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// TestCreatedWhileANodeIsDown: a pool that is committed is answered as made, with
// how much of it is ready.
func TestCreatedWhileANodeIsDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 1))
	held := map[sundog.NodeID]uint32{}
	for _, owners := range c.view().Placement {
		held[owners[0].Node]++
	}
	down := c.nodes[2].ID()
	c.kill(2)
	c.eventually("the catalog goes on", func() bool { return c.nodes[0].council.leads() || c.nodes[1].council.leads() })
	var reply rpcpb.PoolCreateReply
	require.NoError(t, c.callWithin(8*time.Second, c.nodes[0], rpc.MethodPoolCreate, &rpcpb.PoolCreateRequest{
		Name: "q", Spec: &rpcpb.PoolSpec{Consistency: uint32(sundog.Strong)},
	}, &reply))
	require.Equal(t, uint32(4), reply.GetPartitions())
	require.LessOrEqual(t, reply.GetPartitionsReady(), 4-held[down])
	require.Equal(t, 1, rpc.SpecOf(reply.GetSpec()).Replicas, "as committed")
	pool, ok := c.view().PoolByName("q")
	require.True(t, ok)
	require.Equal(t, uint64(pool.ID), reply.GetId())
	c.start(2)
	c.ready()
	c.client("q").fill(0, 20)
}

// TestConcurrentPoolSets: changes of different fields both survive, whichever
// nodes they go through.
func TestConcurrentPoolSets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	c.ready()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	for i := range int64(10) {
		quota, largest := 10<<20+i, 1000+i
		var both sync.WaitGroup
		errs := make([]error, 2)
		for at, spec := range []*rpcpb.PoolSpec{{Quota: quota}, {MaxValue: largest}} {
			both.Go(func() {
				errs[at] = c.call(c.nodes[at], rpc.MethodPoolSet, &rpcpb.PoolSetRequest{Name: "p", Spec: spec}, &rpcpb.PoolSetReply{})
			})
		}
		both.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		c.eventually("both are there", func() bool {
			p, ok := c.view().PoolByName("p")
			return ok && p.Spec.Quota == quota && p.Spec.MaxValue == largest
		})
	}
	err := c.call(c.nodes[0], rpc.MethodPoolSet, &rpcpb.PoolSetRequest{Name: "p", Clear: []string{"acks"}}, &rpcpb.PoolSetReply{})
	require.Equal(t, sundog.Invalid, sundog.KindOf(err), "%v", err)
	require.NoError(t, c.call(c.nodes[0], rpc.MethodPoolSet, &rpcpb.PoolSetRequest{Name: "p", Clear: []string{"quota"}}, &rpcpb.PoolSetReply{}))
	c.eventually("the quota is gone", func() bool { p, _ := c.view().PoolByName("p"); return p.Spec.Quota == 0 && p.Spec.MaxValue == 1009 })
}
