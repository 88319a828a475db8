package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// A partition without a leader is named, with who has to be started.
func TestNoLeaderIsNamed(t *testing.T) {
	c := newCluster(t, 3, 8)
	_, p := c.dial(Options{Timeout: 500 * time.Millisecond})
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method >= rpc.MethodMap {
			return nil, nil, false
		}
		return nil, sundog.Errorf(sundog.NotOwner, "this replica does not lead"), true
	})
	_, err := p.Put(t.Context(), []byte("k"), nil)
	requireKind(t, sundog.Unavailable, err)
	require.ErrorContains(t, err, "has no leader: start a majority of its replicas")
	require.ErrorContains(t, err, sundog.NodeID(2).String())
	_, err = p.Get(t.Context(), []byte("k"))
	requireKind(t, sundog.Unavailable, err)
	require.ErrorContains(t, err, "has no leader")
}

// Nodes know pools by id, people by name.
func TestErrorsNameThePool(t *testing.T) {
	c := newCluster(t, 1, 1)
	_, p := c.dial(Options{})
	c.setHook(func(_ *fakeNode, req *rpc.Request) (rpc.Body, error, bool) {
		if req.Method != rpc.MethodMutate {
			return nil, nil, false
		}
		e := sundog.Errorf(sundog.NoSpace, "pool 1 holds 10 of the 10 bytes that its quota leaves to partition 0")
		e.Used, e.Limit = 10, 10
		return rpc.EncodeResults([]rpc.OpResult{{Err: e}}), nil, true
	})
	_, err := p.Put(t.Context(), []byte("k"), nil)
	requireKind(t, sundog.NoSpace, err)
	require.ErrorContains(t, err, `pool "p" holds 10`)
	require.Equal(t, int64(10), sundog.AsError(err).Limit)
}

func TestQuotaLeavesSomethingToEachPartition(t *testing.T) {
	c := newCluster(t, 1, 8)
	cl, _ := c.dial(Options{})
	n, err := cl.PartitionCount(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, n)
	_, err = cl.CreatePool(t.Context(), "q", sundog.PoolSpec{Consistency: sundog.Strong, Quota: 7})
	requireKind(t, sundog.Invalid, err)
	require.ErrorContains(t, err, "8 partitions")
	requireKind(t, sundog.Invalid, cl.SetPool(t.Context(), "p", PoolChange{Quota: new(int64(7))}))
	_, err = cl.CreatePool(t.Context(), "q", sundog.PoolSpec{Consistency: sundog.Strong, Quota: 8})
	require.NoError(t, err)
}

func TestAddresses(t *testing.T) {
	for _, addr := range []string{"host", "host:", "host:99999", "host:0", "host:-1", "host:x", "::1"} {
		_, err := Dial(t.Context(), []string{addr}, Options{})
		requireKind(t, sundog.Invalid, err)
	}
	c, err := Dial(t.Context(), []string{"[::1]:7400", "host:65535"}, Options{Lazy: true})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
