package strong

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

const eventually = 10 * time.Second

func TestMutateAndGet(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0), strongPool(2, 0))
	results := b.mutate(t, put(1, "a", "one"), put(2, "a", "two"), incr(1, "n", 3), del(1, "none"), put(1, "a", "again"))
	for i, kind := range []sundog.Kind{0, 0, 0, sundog.NotFound, 0} {
		if kind == 0 {
			require.Nil(t, results[i].Err)
		} else {
			require.ErrorIs(t, results[i].Err, kind)
		}
	}
	require.EqualValues(t, 3, results[2].Int)
	got := b.read(t, 1, "a", "none", "n", "")
	require.Equal(t, rpc.Item{Version: results[4].Version, Value: []byte("again")}, got[0].Item)
	require.ErrorIs(t, got[1].Err, sundog.NotFound)
	require.Equal(t, counter(3), string(got[2].Item.Value))
	require.ErrorIs(t, got[3].Err, sundog.Invalid)
	require.Equal(t, "two", string(b.read(t, 2, "a")[0].Item.Value))

	require.EqualValues(t, replication.PoolStatus{ID: 1, Keys: 2, Bytes: 1 + 5 + 1 + 8, Limit: -1}, b.poolStatus(1))
	st := b.Status()
	require.True(t, st.Leading)
	require.Empty(t, st.Alarm)
	require.EqualValues(t, 10, st.Catalog)
}

// What can never succeed, or does not belong here, does not reach the log.
func TestRefusedBeforeTheLog(t *testing.T) {
	small := strongPool(1, 0)
	small.Spec.MaxValue = 10
	b := openSolo(t, testMemory, small)
	require.Nil(t, b.one(t, put(1, "a", "0123456789")).Err)
	before := b.Status().Applied
	bad := []rpc.Op{
		put(1, "", "v"),
		put(1, strings.Repeat("k", sundog.MaxKey+1), "v"),
		{Code: 9, Pool: 1, Key: []byte("k")},
		{Code: rpc.OpPut, Cond: 9, Pool: 1, Key: []byte("k")},
		ifAbsent(del(1, "k")),
		{Code: rpc.OpDelete, Pool: 1, Key: []byte("k"), Value: []byte("v")},
		ttl(put(1, "k", "v"), -time.Second),
		put(1, "k", "0123456789a"),
		put(5, "k", "v"),
	}
	results := b.mutate(t, bad...)
	for i := range bad[:7] {
		require.ErrorIs(t, results[i].Err, sundog.Invalid, "%d", i)
	}
	require.ErrorIs(t, results[7].Err, sundog.TooLarge)
	require.EqualValues(t, 11, results[7].Err.Used)
	require.EqualValues(t, 10, results[7].Err.Limit)
	require.ErrorIs(t, results[8].Err, sundog.Stale)
	require.EqualValues(t, 10, results[8].Err.Epoch)
	require.Equal(t, before, b.Status().Applied)
	require.ErrorIs(t, b.read(t, 5, "k")[0].Err, sundog.Stale)
	_, err := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 5})
	require.ErrorIs(t, err, sundog.Stale)
	_, err = b.Check(ctxOf(t), 5)
	require.ErrorIs(t, err, sundog.Stale)
}

func TestNewPoolServesAtOnceAndADroppedOneEnds(t *testing.T) {
	b := openSolo(t, testMemory)
	b.setMap(20, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	b.setMap(21, strongPool(1, 0), strongPool(2, 0))
	require.ErrorIs(t, b.read(t, 2, "a")[0].Err, sundog.NotFound, "read before it was ever written")
	require.NoError(t, b.SyncPools(ctxOf(t), &ring.Map{Epoch: 5}), "an older map does nothing")
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	applied := b.Status().Applied
	require.NoError(t, b.SyncPools(ctxOf(t), b.getMap()))
	b.setMap(22, strongPool(1, 0), strongPool(2, 0))
	require.NoError(t, b.SyncPools(ctxOf(t), b.getMap()), "another epoch, the same pools")
	require.Equal(t, applied, b.Status().Applied)
	b.setMap(23, strongPool(2, 0))
	require.NoError(t, b.SyncPools(ctxOf(t), b.getMap()))
	require.ErrorIs(t, b.one(t, put(1, "a", "v")).Err, sundog.Stale)
	require.ErrorIs(t, b.read(t, 1, "a")[0].Err, sundog.Stale)
}

func TestFollowerSendsToTheLeader(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	b.solo.lead(false)
	_, scanErr := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1})
	_, checkErr := b.Check(ctxOf(t), 1)
	for _, err := range []error{b.one(t, put(1, "a", "w")).Err, b.read(t, 1, "a")[0].Err, scanErr, checkErr, b.SyncPools(ctxOf(t), &ring.Map{Epoch: 99})} {
		require.ErrorIs(t, err, sundog.NotOwner)
		require.Equal(t, soloLeader, sundog.AsError(err).Leader)
		require.EqualValues(t, 10, sundog.AsError(err).Epoch)
	}
}

// A new leader admits nothing before it has applied all that came before.
func TestNewLeaderWaitsForItsFirstEntry(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	b.solo.lead(false)
	stall := make(chan struct{})
	b.solo.do(func() { b.solo.stall = stall })
	b.solo.lead(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Mutate(ctx, []rpc.Op{put(1, "a", "w")})[0].Err, sundog.Timeout)
	done := make(chan *sundog.Error)
	go func() { done <- b.Mutate(t.Context(), []rpc.Op{put(1, "a", "w")})[0].Err }()
	close(stall)
	require.Nil(t, <-done)

	stall = make(chan struct{})
	defer close(stall)
	b.solo.lead(false)
	b.solo.do(func() { b.solo.stall = stall })
	b.solo.lead(true)
	go func() { done <- b.Mutate(t.Context(), []rpc.Op{put(1, "a", "w")})[0].Err }()
	b.solo.lead(false)
	require.ErrorIs(t, <-done, sundog.NotOwner, "the reign ended first")
}

func TestDeadlinesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openSolo(t, testMemory, strongPool(1, 0))
		for i := range 100 {
			require.Nil(t, b.one(t, ttl(put(1, fmt.Sprint("k", i), "v"), time.Duration(50+10*i)*time.Millisecond)).Err)
		}
		require.EqualValues(t, 100, b.poolStatus(1).Keys)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, b.poolStatus(1).Keys, "removed without anybody asking")
		require.Zero(t, b.poolStatus(1).Bytes)
		ticks := 0
		b.solo.do(func() { ticks = b.solo.ticks })
		require.LessOrEqual(t, ticks, 11, "at most one in 100 ms")
		require.GreaterOrEqual(t, ticks, 9)
		time.Sleep(time.Hour)
		b.solo.do(func() { require.Equal(t, ticks, b.solo.ticks, "none when nothing is due") })
		for range 100 { // each wakes the leader
			require.Nil(t, b.one(t, ttl(put(1, "k", "v"), time.Millisecond)).Err)
			time.Sleep(10 * time.Millisecond)
		}
		b.solo.do(func() { require.LessOrEqual(t, b.solo.ticks-ticks, 11, "still at most one in 100 ms") })

		// Every verb, with the leader's own ticks out of the way (CASES 13).
		for name, verb := range map[string]func() error{
			"get":    func() error { return b.read(t, 1, "k")[0].Err },
			"delete": func() error { return b.one(t, del(1, "k")).Err },
		} {
			require.Nil(t, b.one(t, ttl(put(1, "k", "v"), 50*time.Millisecond)).Err)
			require.Nil(t, b.read(t, 1, "k")[0].Err)
			time.Sleep(50 * time.Millisecond)
			require.ErrorIs(t, verb(), sundog.NotFound, name)
		}
		set := func() {
			require.Nil(t, b.one(t, ttl(put(1, "k", "v"), 50*time.Millisecond)).Err)
			time.Sleep(50 * time.Millisecond)
		}
		set()
		reply, err := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1})
		require.NoError(t, err)
		require.Empty(t, reply.Items)
		set()
		require.Nil(t, b.one(t, ifAbsent(put(1, "k", "w"))).Err)
		set()
		require.EqualValues(t, 1, b.one(t, incr(1, "k", 1)).Int)
		set()
		require.ErrorIs(t, b.one(t, ifVersion(put(1, "k", "w"), sundog.Version{Clock: 1})).Err, sundog.Conflict)
	})
}

// A key that is due is gone only when the log says so: a read waits for a tick.
func TestReadOfADueKeyWaitsForATick(t *testing.T) {
	var ahead atomic.Int64
	b := openSoloAt(t, testMemory, func() sundog.Clock { return at(1_000_000 + ahead.Load()) }, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "other", "w")).Err)
	overdue := func() { // it becomes due behind the barrier
		b.solo.do(func() { b.solo.passed = nil })
		require.Nil(t, b.one(t, ttl(put(1, "k", "v"), time.Hour)).Err)
		b.solo.do(func() { b.solo.passed = func() { ahead.Add(time.Hour.Milliseconds()) } })
	}
	overdue()
	got := b.read(t, 1, "k", "other")
	require.ErrorIs(t, got[0].Err, sundog.NotFound)
	require.Equal(t, "w", string(got[1].Item.Value))
	overdue()
	reply, err := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1})
	require.NoError(t, err)
	require.Len(t, reply.Items, 1)
	require.Equal(t, "other", string(reply.Items[0].Key))
}

// A restore between a read's barrier and its look at the table may have brought
// an older state: the read must not see it.
func TestReadDoesNotOutliveARestore(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "k", "old")).Err)
	s, err := b.machine.Snapshot()
	require.NoError(t, err)
	saved := bytesOf(t, s)
	s.Release()
	require.Nil(t, b.one(t, put(1, "k", "new")).Err)
	era, failed := b.readable(ctxOf(t), 1)
	require.Nil(t, failed)
	require.NoError(t, b.machine.Restore(bytes.NewReader(saved)))
	results := make([]rpc.GetResult, 1)
	b.getOnce(era, 1, [][]byte{[]byte("k")}, results, []int{0})
	require.ErrorIs(t, results[0].Err, sundog.Unavailable)
}

func TestManyOpsKeepTheirOrder(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	var ops []rpc.Op
	for i := range 3000 {
		ops = append(ops, put(1, fmt.Sprint("k", i%7), fmt.Sprint(i)))
	}
	big := strings.Repeat("v", sundog.MaxValue)
	ops = append(ops, put(1, "big", big), put(1, "k0", "last"), put(1, "big2", big))
	var last sundog.Version
	for i, r := range b.mutate(t, ops...) {
		require.Nil(t, r.Err)
		require.Positive(t, r.Version.Compare(last), "op %d", i)
		last = r.Version
	}
	require.Equal(t, "last", string(b.read(t, 1, "k0")[0].Item.Value))
	require.Equal(t, "2995", string(b.read(t, 1, "k6")[0].Item.Value))
	require.Len(t, b.read(t, 1, "big2")[0].Item.Value, sundog.MaxValue)
}

func TestUnknownEndsTheRequest(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	b.solo.do(func() { b.solo.hide = true })
	big := strings.Repeat("v", chunkBytes)
	results := b.mutate(t, put(1, "", "no key"), put(1, "a", big), put(1, "b", big), put(1, "c", "v"))
	require.ErrorIs(t, results[0].Err, sundog.Invalid)
	require.ErrorIs(t, results[1].Err, sundog.Unknown)
	require.ErrorIs(t, results[2].Err, sundog.Unavailable)
	require.ErrorIs(t, results[3].Err, sundog.Unavailable)
	b.solo.do(func() { b.solo.hide = false })
	got := b.read(t, 1, "a", "b", "c")
	require.Equal(t, big, string(got[0].Item.Value), "it was executed after all")
	require.ErrorIs(t, got[1].Err, sundog.NotFound)
	require.ErrorIs(t, got[2].Err, sundog.NotFound)
}

func TestAnswersAreBounded(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	var keys []string
	for i := range 6 {
		keys = append(keys, fmt.Sprint(i))
		require.Nil(t, b.one(t, put(1, keys[i], strings.Repeat("v", sundog.MaxValue))).Err)
	}
	full := 0
	for _, r := range b.read(t, 1, keys...) {
		if r.Err != nil {
			require.ErrorIs(t, r.Err, sundog.Unavailable)
			full++
		}
	}
	require.Equal(t, 3, full)
	seen := map[string]int{}
	pages := 0
	for cursor := uint64(0); ; pages++ {
		reply, err := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1, Cursor: cursor})
		require.NoError(t, err)
		require.LessOrEqual(t, len(reply.Items), 1)
		for _, it := range reply.Items {
			seen[string(it.Key)]++
		}
		if cursor = reply.Next; cursor == 0 {
			break
		}
	}
	require.Len(t, seen, 6)
}

func TestScan(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	want := map[string]string{}
	for i := range 500 {
		key := fmt.Sprintf("%c/%d", 'a'+i%5, i)
		want[key] = fmt.Sprint(i)
		require.Nil(t, b.one(t, ttl(put(1, key, want[key]), time.Duration(i%2)*time.Hour)).Err)
	}
	for _, prefix := range []string{"", "a", "b/1", "nothing"} {
		for _, keysOnly := range []bool{false, true} {
			got := map[string]string{}
			for cursor := uint64(0); ; {
				reply, err := b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1, Cursor: cursor, Limit: 37, Prefix: []byte(prefix), KeysOnly: keysOnly})
				require.NoError(t, err)
				for _, it := range reply.Items {
					require.Equal(t, b.read(t, 1, string(it.Key))[0].Item.Version, it.Version)
					require.Equal(t, strings.HasSuffix(string(it.Key), "/1") || it.Deadline != 0, it.Deadline != 0)
					got[string(it.Key)] = string(it.Value)
				}
				if cursor = reply.Next; cursor == 0 {
					break
				}
			}
			expect := map[string]string{}
			for k, v := range want {
				if strings.HasPrefix(k, prefix) {
					if expect[k] = v; keysOnly {
						expect[k] = ""
					}
				}
			}
			require.Equal(t, expect, got)
		}
	}
}

func TestCheck(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0), strongPool(2, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	sumOf := func(pool sundog.PoolID) (sum replication.CheckSum) {
		id, err := b.Check(ctxOf(t), pool)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			var ok bool
			sum, ok = b.CheckResult(id)
			return ok
		}, eventually, time.Millisecond)
		return sum
	}
	one, two := sumOf(1), sumOf(1)
	require.Equal(t, one.Hash, two.Hash)
	require.EqualValues(t, 1, one.Keys)
	require.Greater(t, two.Index, one.Index)
	require.Nil(t, b.one(t, put(1, "a", "w")).Err)
	require.NotEqual(t, one.Hash, sumOf(1).Hash)
	require.Zero(t, sumOf(2).Keys)
	for range checksKept + 10 {
		sumOf(2)
	}
	require.LessOrEqual(t, len(b.sums.byID), checksKept)
	_, ok := b.CheckResult(12345)
	require.False(t, ok)
}

// A replica that had to stop says so, and answers nothing.
func TestStoppedReplica(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	_, err := b.solo.Propose(ctxOf(t), []byte{200})
	require.ErrorIs(t, err, sundog.Unknown)
	b.onFailure(sundog.Errorf(sundog.Internal, "the machine gave no result"))
	require.Contains(t, b.Status().Alarm, "upgrade this node")
	require.Empty(t, b.Status().Pools)
	require.ErrorIs(t, b.read(t, 1, "a")[0].Err, sundog.Unavailable)
	require.ErrorIs(t, b.one(t, put(1, "a", "w")).Err, sundog.Unavailable)
	_, err = b.Scan(ctxOf(t), rpc.ScanRequest{Pool: 1})
	require.ErrorIs(t, err, sundog.Unavailable)
}

func TestClose(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 0))
	require.Nil(t, b.one(t, ttl(put(1, "a", "v"), time.Hour)).Err)
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			for j := 0; ; j++ {
				ctx := context.WithoutCancel(t.Context())
				r := b.Mutate(ctx, []rpc.Op{put(1, fmt.Sprint(i), fmt.Sprint(j))})[0]
				g := b.Get(ctx, 1, [][]byte{[]byte("a")})[0]
				b.Check(ctx, 1)
				if r.Err != nil && g.Err != nil {
					return
				}
			}
		})
	}
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	calls.Wait()
	require.Zero(t, b.arenas.Memory().Used())
	b.Status()
}
