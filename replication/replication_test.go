package replication

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/dataplane/table"
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
	var all []Promise
	var sum int64
	var err error
	for n := 0; err == nil; n++ {
		var p Promise
		p, err = a.Promise(1, n, 99*n, 1)
		require.True(t, err != nil || p.bytes > int64(100*n))
		all, sum = append(all, p), sum+p.bytes
	}
	require.ErrorIs(t, err, sundog.NoSpace)
	require.EqualValues(t, limit, sundog.AsError(err).Limit)
	require.Zero(t, sundog.AsError(err).Used)
	require.Less(t, sum, int64(limit))
	require.Greater(t, sum, int64(limit*9/10))
	for _, p := range all {
		a.Settle(p)
	}
	_, err = a.Promise(1, 1, limit/8, 3)
	require.NoError(t, err)
	_, err = a.Promise(1, 1, limit/8, 3)
	require.ErrorIs(t, err, sundog.NoSpace, "two others may promise as much")
}

// Where nothing is left to map, the free slots of the right size are promised,
// each once.
func TestFreeSlotsArePromised(t *testing.T) {
	a := NewArenas(dataplane.NewMemory(8<<20), nil)
	arena := a.Acquire(1)
	tbl, err := table.New(table.Config{Arena: arena, Incarnation: 1})
	require.NoError(t, err)
	value := make([]byte, 10_000)
	n := 0
	for ; ; n++ {
		if err := tbl.Put(fmt.Append(nil, n), value, sundog.Version{Clock: 1}, 0, 1); err != nil {
			require.ErrorIs(t, err, sundog.NoSpace)
			break
		}
	}
	_, err = a.Promise(1, 4, len(value), 1)
	require.ErrorIs(t, err, sundog.NoSpace)
	for i := range 20 {
		require.True(t, tbl.Delete(fmt.Append(nil, 7*i), 1))
	}
	for tbl.Compact() {
	}
	free := arena.FreeSlots(4, len(value))
	require.Positive(t, free)
	var all []Promise
	for {
		p, err := a.Promise(1, 4, len(value), 1)
		if err != nil {
			break
		}
		all = append(all, p)
		require.NoError(t, tbl.Put(fmt.Append(nil, "again", len(all)), value, sundog.Version{Clock: 2}, 0, 1), "what is promised is there")
	}
	require.NotEmpty(t, all)
	require.LessOrEqual(t, int64(len(all)), free)
	for _, p := range all {
		a.Settle(p)
	}
	require.Zero(t, a.byPool[1].promised)
	tbl.Close()
	a.Release(1)
}
