package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

// fakeEngine answers with its partition number; it panics on the key "panic".
type fakeEngine struct {
	p sundog.Partition
}

func (e fakeEngine) Mutate(_ context.Context, ops []rpc.Op) []rpc.OpResult {
	out := make([]rpc.OpResult, len(ops))
	for i, op := range ops {
		e.maybePanic(op.Key)
		out[i].Int = int64(e.p)
		out[i].Version.Clock = sundog.Clock(i + 1) // order within the call
	}
	return out
}

func (e fakeEngine) Get(_ context.Context, _ sundog.PoolID, keys [][]byte) []rpc.GetResult {
	out := make([]rpc.GetResult, len(keys))
	for i, k := range keys {
		e.maybePanic(k)
		out[i].Item.Value = fmt.Appendf(nil, "%s@%d", k, e.p)
	}
	return out
}

func (e fakeEngine) maybePanic(key []byte) {
	if string(key) == "panic" {
		panic("a fault of ours")
	}
}

func (e fakeEngine) Scan(context.Context, rpc.ScanRequest) (rpc.ScanReply, error) {
	return rpc.ScanReply{}, sundog.Errorf(sundog.NotOwner, "not here")
}
func (e fakeEngine) Status() replication.Status { return replication.Status{Partition: e.p} }
func (e fakeEngine) Close() error               { return nil }

const (
	testPool   = sundog.PoolID(3)
	testEpoch  = sundog.Epoch(9)
	testSelf   = sundog.NodeID(1)
	notHosted  = sundog.Partition(3) // of four: placed elsewhere
	notStarted = sundog.Partition(2) // placed here, not open yet
)

func newDataService(t *testing.T) *dataService {
	t.Helper()
	spec := sundog.PoolSpec{Consistency: sundog.Strong, Replicas: 1, MaxValue: 100}.WithDefaults()
	m := &ring.Map{
		Cluster: "0123456789abcdef0123456789abcdef", Epoch: testEpoch, Partitions: 4, Replicas: 1, Timings: sundog.DefaultTimings(),
		Nodes: []ring.Node{{ID: 1, Weight: 1}, {ID: 2, Weight: 1}}, NextPool: 4, Birth: 5,
		Pools: []ring.Pool{{ID: testPool, Name: "p", Spec: spec, Created: 5}},
	}
	for p := range sundog.Partition(4) {
		owner := testSelf
		if p == notHosted {
			owner = 2
		}
		m.Placement = append(m.Placement, ring.Replicas{{Node: owner, Incarnation: 1}})
	}
	require.NoError(t, m.Validate())
	a := newAtlas(func(string) error { return nil }, newLog())
	_, err := a.Offer(m)
	require.NoError(t, err)
	engines := &replication.Engines{}
	for p := range notStarted {
		require.NoError(t, engines.Add(sundog.Strong, p, fakeEngine{p}))
	}
	return &dataService{self: testSelf, atlas: a, engines: engines}
}

// keyIn finds the n-th key of a partition.
func keyIn(p sundog.Partition, n int) []byte {
	for i := 0; ; i++ {
		k := fmt.Appendf(nil, "k%d", i)
		if sundog.PartitionOf(k, 4) == p {
			if n == 0 {
				return k
			}
			n--
		}
	}
}

func TestMultiGetSplits(t *testing.T) {
	d := newDataService(t)
	keys := [][]byte{keyIn(0, 0), keyIn(1, 0), keyIn(notHosted, 0), {}, keyIn(0, 1), keyIn(notStarted, 0)}
	body, err := d.multiGet(t.Context(), &rpc.Request{
		Epoch: testEpoch, Body: rpc.EncodeMultiGet(rpc.MultiGetRequest{Pool: testPool, Keys: keys}).Bytes(),
	})
	require.NoError(t, err)
	results, err := rpc.DecodeGetResults(body.Bytes())
	require.NoError(t, err)
	require.Len(t, results, len(keys))
	for i, p := range map[int]int{0: 0, 1: 1, 4: 0} {
		require.Nil(t, results[i].Err)
		require.Equal(t, fmt.Sprintf("%s@%d", keys[i], p), string(results[i].Item.Value))
	}
	require.Equal(t, sundog.NotOwner, results[2].Err.Kind)
	require.Equal(t, testEpoch, results[2].Err.Epoch)
	require.Equal(t, sundog.Invalid, results[3].Err.Kind)
	require.Equal(t, sundog.Unavailable, results[5].Err.Kind)
}

func TestMutateSplitsInOrder(t *testing.T) {
	d := newDataService(t)
	put := func(key, value []byte) rpc.Op {
		return rpc.Op{Code: rpc.OpPut, Pool: testPool, Key: key, Value: value}
	}
	ops := []rpc.Op{
		put(keyIn(0, 0), nil), put(keyIn(1, 0), nil), put(keyIn(0, 1), make([]byte, 101)), put(keyIn(0, 0), []byte("b")),
		{Code: rpc.OpPut, Pool: 99, Key: keyIn(0, 0)}, put(make([]byte, sundog.MaxKey+1), nil),
	}
	body, err := d.mutate(t.Context(), &rpc.Request{Epoch: testEpoch, Body: rpc.EncodeMutate(ops).Bytes()})
	require.NoError(t, err)
	results, err := rpc.DecodeResults(body.Bytes())
	require.NoError(t, err)
	require.Nil(t, results[0].Err)
	require.Nil(t, results[1].Err)
	require.Equal(t, int64(1), results[1].Int)
	require.Equal(t, sundog.TooLarge, results[2].Err.Kind)
	require.Equal(t, int64(101), results[2].Err.Used)
	require.Equal(t, int64(100), results[2].Err.Limit)
	require.Greater(t, results[3].Version.Clock, results[0].Version.Clock)
	require.Equal(t, sundog.NotFound, results[4].Err.Kind)
	require.Equal(t, sundog.Invalid, results[5].Err.Kind)
}

// TestPanicStaysInItsRequest is CASE 46: also where a request runs on several
// goroutines, its panic reaches the one that rpc watches.
func TestPanicStaysInItsRequest(t *testing.T) {
	d := newDataService(t)
	other := keyIn(0, 0)
	if sundog.PartitionOf([]byte("panic"), 4) == 0 {
		other = keyIn(1, 0)
	}
	if p := sundog.PartitionOf([]byte("panic"), 4); p >= notStarted {
		require.NoError(t, d.engines.Add(sundog.Strong, p, fakeEngine{p}))
	}
	require.PanicsWithValue(t, "a fault of ours", func() {
		d.read(t.Context(), testPool, [][]byte{other, []byte("panic")}, testEpoch)
	})
}

func TestScanAnswersItsOwnErrors(t *testing.T) {
	d := newDataService(t)
	scan := func(r rpc.ScanRequest, epoch sundog.Epoch) *sundog.Error {
		_, err := d.scan(t.Context(), &rpc.Request{Epoch: epoch, Body: rpc.EncodeScan(r).Bytes()})
		require.Error(t, err)
		return sundog.AsError(err)
	}
	require.Equal(t, sundog.Invalid, scan(rpc.ScanRequest{Pool: testPool, Partition: 4}, testEpoch).Kind)
	require.Equal(t, sundog.NotFound, scan(rpc.ScanRequest{Pool: 4}, testEpoch).Kind)
	require.Equal(t, sundog.Stale, scan(rpc.ScanRequest{Pool: 4}, testEpoch-1).Kind)
	e := scan(rpc.ScanRequest{Pool: testPool}, testEpoch)
	require.Equal(t, sundog.NotOwner, e.Kind)
	require.Equal(t, testEpoch, e.Epoch)
	for _, serve := range []func(context.Context, *rpc.Request) (rpc.Body, error){d.get, d.multiGet, d.mutate, d.scan} {
		_, err := serve(t.Context(), &rpc.Request{Epoch: testEpoch, Body: []byte("garbage")})
		require.Equal(t, sundog.Corrupt, sundog.KindOf(err))
	}
}

func TestAnswerFitsAFrame(t *testing.T) {
	results := make([]rpc.GetResult, 6)
	for i := range results {
		results[i].Item.Value = make([]byte, 1<<20)
	}
	cutAnswer(results)
	for i, r := range results {
		if i < 3 {
			require.Nil(t, r.Err)
			continue
		}
		require.Equal(t, sundog.Unavailable, r.Err.Kind)
		require.Nil(t, r.Item.Value)
	}
}

// TestAnswersFitWhateverHappens: the largest requests that are executed have an
// answer that fits a frame, if all parts fail in the longest words, and if their
// values are as many as an answer takes.
func TestAnswersFitWhateverHappens(t *testing.T) {
	d := newDataService(t)
	limit := rpc.Limits{}.WithDefaults().MaxFrame
	long := &sundog.Error{Kind: sundog.NotOwner, Msg: strings.Repeat("\u00e9", 4000), Epoch: 1, Leader: 1, Used: 1, Limit: 1}
	for _, p := range []sundog.Partition{0, 1} {
		d.engines.Remove(sundog.Strong, p)
		require.NoError(t, d.engines.Add(sundog.Strong, p, failingEngine{fakeEngine{p}, long}))
	}
	ops := make([]rpc.Op, maxParts)
	keys := make([][]byte, maxParts)
	for i := range ops {
		keys[i] = keyIn(sundog.Partition(i%2), i%7)
		ops[i] = rpc.Op{Code: rpc.OpPut, Pool: testPool, Key: keys[i]}
	}
	body, err := d.mutate(t.Context(), &rpc.Request{Epoch: testEpoch, Body: rpc.EncodeMutate(ops).Bytes()})
	require.NoError(t, err)
	require.Less(t, body.Len()+64, limit)
	_, err = rpc.DecodeResults(body.Bytes())
	require.NoError(t, err)
	body, err = d.multiGet(t.Context(), &rpc.Request{Epoch: testEpoch, Body: rpc.EncodeMultiGet(rpc.MultiGetRequest{Pool: testPool, Keys: keys}).Bytes()})
	require.NoError(t, err)
	require.Less(t, body.Len()+64, limit)
	results, err := rpc.DecodeGetResults(body.Bytes())
	require.NoError(t, err)
	failed, values := 0, 0
	for _, r := range results {
		values += len(r.Item.Value)
		if r.Err != nil {
			failed++
		}
	}
	require.Greater(t, failed, maxParts/2)
	require.Greater(t, values, answerBytes/2)
}

// TestTooManyParts: what could have an answer that does not fit is refused before
// it is executed.
func TestTooManyParts(t *testing.T) {
	d := newDataService(t)
	for _, p := range []sundog.Partition{0, 1} {
		d.engines.Remove(sundog.Strong, p)
	}
	ops, keys := make([]rpc.Op, maxParts+1), make([][]byte, maxParts+1)
	for i := range ops {
		keys[i] = []byte("panic") // no engine is to see it
		ops[i] = rpc.Op{Code: rpc.OpPut, Pool: testPool, Key: keys[i]}
	}
	_, err := d.mutate(t.Context(), &rpc.Request{Epoch: testEpoch, Body: rpc.EncodeMutate(ops).Bytes()})
	_, errGet := d.multiGet(t.Context(), &rpc.Request{Epoch: testEpoch, Body: rpc.EncodeMultiGet(rpc.MultiGetRequest{Pool: testPool, Keys: keys}).Bytes()})
	for _, err := range []error{err, errGet} {
		require.Equal(t, sundog.TooLarge, sundog.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "8193")
		require.ErrorContains(t, err, "8192")
		require.EqualValues(t, maxParts+1, sundog.AsError(err).Used)
		require.EqualValues(t, maxParts, sundog.AsError(err).Limit)
	}
}

// failingEngine fails all writes and most reads, and reads values of 1 MiB else.
type failingEngine struct {
	fakeEngine
	err *sundog.Error
}

func (e failingEngine) Mutate(_ context.Context, ops []rpc.Op) []rpc.OpResult {
	out := make([]rpc.OpResult, len(ops))
	for i := range out {
		out[i] = rpc.OpResult{Err: e.err, Int: 1, Version: sundog.Version{Clock: 1}}
	}
	return out
}

func (e failingEngine) Get(_ context.Context, _ sundog.PoolID, keys [][]byte) []rpc.GetResult {
	out := make([]rpc.GetResult, len(keys))
	for i := range out {
		if out[i].Err = e.err; i%1000 == 0 {
			out[i] = rpc.GetResult{Item: rpc.Item{Value: make([]byte, 1<<20-1)}}
		}
	}
	return out
}
