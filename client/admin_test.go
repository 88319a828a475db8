package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// A pool that is committed is made, however few of its partitions were ready in
// time.
func TestCreatedAndNotReady(t *testing.T) {
	c := newCluster(t, 3, 8)
	cl, _ := c.dial(Options{})
	spec := sundog.PoolSpec{Consistency: sundog.Strong, Replicas: 3, Quota: 1 << 20}.WithDefaults()
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method != rpc.MethodPoolCreate {
			return nil, nil, false
		}
		return must(rpc.Marshal(&rpcpb.PoolCreateReply{
			Id: 7, Epoch: 10, PartitionsReady: 3, Partitions: 8, Spec: rpc.SpecMessage(spec),
		})), nil, true
	})
	st, err := cl.CreatePoolStatus(t.Context(), "new", sundog.PoolSpec{Consistency: sundog.Strong})
	require.NoError(t, err)
	require.Equal(t, PoolStatus{PoolInfo: PoolInfo{ID: 7, Name: "new", Spec: spec}, Ready: 3, Partitions: 8}, st)
	info, err := cl.CreatePool(t.Context(), "new", sundog.PoolSpec{Consistency: sundog.Strong})
	require.NoError(t, err)
	require.Equal(t, st.PoolInfo, info)
}

// A change that is made is no error because its map does not come.
func TestChangesMadeWithoutTheirMap(t *testing.T) {
	c := newCluster(t, 1, 8)
	cl, _ := c.dial(Options{})
	_, err := cl.Nodes(t.Context()) // it has a map
	require.NoError(t, err)
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		switch req.Method {
		case rpc.MethodMap:
			return nil, sundog.Errorf(sundog.Unavailable, "no map here"), true
		case rpc.MethodPoolCreate:
			return must(rpc.Marshal(&rpcpb.PoolCreateReply{Id: 7, Epoch: 99})), nil, true
		case rpc.MethodPoolSet:
			return must(rpc.Marshal(&rpcpb.PoolSetReply{Epoch: 99})), nil, true
		case rpc.MethodPoolDelete:
			return must(rpc.Marshal(&rpcpb.PoolDeleteReply{Epoch: 99})), nil, true
		}
		return nil, nil, false
	})
	for name, change := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := cl.CreatePool(ctx, "new", sundog.PoolSpec{Consistency: sundog.Strong})
			return err
		},
		"set":    func(ctx context.Context) error { return cl.SetPool(ctx, "p", PoolChange{Quota: new(int64(4096))}) },
		"delete": func(ctx context.Context) error { return cl.DeletePool(ctx, "p") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		require.NoError(t, change(ctx), name)
		cancel()
	}
}
