package replication

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/rpc"
)

type engine struct{ name string }

func (engine) Mutate(context.Context, []rpc.Op) []rpc.OpResult { return nil }
func (engine) Get(context.Context, sundog.PoolID, [][]byte) []rpc.GetResult {
	return nil
}
func (engine) Scan(context.Context, rpc.ScanRequest) (rpc.ScanReply, error) {
	return rpc.ScanReply{}, nil
}
func (engine) Status() Status { return Status{} }
func (engine) Close() error   { return nil }

func TestEngines(t *testing.T) {
	var s Engines
	_, err := s.Find(sundog.Strong, 3)
	require.ErrorIs(t, err, sundog.NotOwner)
	require.NoError(t, s.Add(sundog.Strong, 3, engine{"a"}))
	require.ErrorIs(t, s.Add(sundog.Strong, 3, engine{"b"}), sundog.Exists)
	require.NoError(t, s.Add(sundog.Eventual, 3, engine{"c"}))
	e, err := s.Find(sundog.Strong, 3)
	require.NoError(t, err)
	require.Equal(t, engine{"a"}, e)
	require.Len(t, s.All(), 2)
	require.Equal(t, engine{"a"}, s.Remove(sundog.Strong, 3))
	require.Nil(t, s.Remove(sundog.Strong, 3))
	_, err = s.Find(sundog.Strong, 3)
	require.ErrorIs(t, err, sundog.NotOwner)
	require.Len(t, s.All(), 1)
}

func TestArenasAreSharedAndGivenBack(t *testing.T) {
	a := NewArenas(dataplane.NewMemory(64<<20), nil)
	one, two, other := a.Acquire(1), a.Acquire(1), a.Acquire(2)
	require.Same(t, one, two)
	require.NotSame(t, one, other)
	a.Release(1)
	require.Same(t, one, a.Acquire(1), "one holder is left")
	a.Release(1)
	a.Release(1)
	a.Release(2)
	a.Release(2) // one too many is harmless
	require.Empty(t, a.byPool)
	require.Zero(t, a.Memory().Used())
}

func TestPromisesStayWithinTheMemory(t *testing.T) {
	const limit = 32 << 20
	a := NewArenas(dataplane.NewMemory(limit), nil)
	var sum int64
	var err error
	for n := int64(0); err == nil; n++ {
		var set int64
		set, err = a.Promise(100*n, 1)
		require.True(t, err != nil || set > 100*n)
		sum += set
	}
	require.ErrorIs(t, err, sundog.NoSpace)
	require.EqualValues(t, limit, sundog.AsError(err).Limit)
	require.Zero(t, sundog.AsError(err).Used)
	require.Less(t, sum, int64(limit))
	require.Greater(t, sum, int64(limit*9/10))
	a.Settle(sum)
	_, err = a.Promise(limit/4, 1)
	require.NoError(t, err)
	_, err = a.Promise(limit/2, 1)
	require.ErrorIs(t, err, sundog.NoSpace)
	_, err = a.Promise(limit/32, 3)
	require.ErrorIs(t, err, sundog.NoSpace, "two others may promise as much")
}
