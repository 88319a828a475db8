package strong

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

func TestQuotaIsExact(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 400), strongPool(2, 0), strongPool(3, 3)) // of 4 partitions
	require.Nil(t, b.one(t, put(1, "a", strings.Repeat("v", 59))).Err)
	require.EqualValues(t, 100, b.poolStatus(1).Limit)
	before := b.Status().Applied
	err := b.one(t, put(1, "b", strings.Repeat("v", 40))).Err
	require.ErrorIs(t, err, sundog.NoSpace)
	require.EqualValues(t, 60, err.Used)
	require.EqualValues(t, 100, err.Limit)
	require.ErrorIs(t, b.one(t, put(1, "a", strings.Repeat("w", 100))).Err, sundog.NoSpace)
	require.Equal(t, before, b.Status().Applied, "refused before the log")
	require.Equal(t, strings.Repeat("v", 59), string(b.read(t, 1, "a")[0].Item.Value), "the old value stays")
	require.Nil(t, b.one(t, put(1, "a", strings.Repeat("w", 99))).Err, "an overwrite counts by the difference")
	require.ErrorIs(t, b.one(t, incr(1, "n", 1)).Err, sundog.NoSpace)
	require.ErrorIs(t, b.one(t, put(1, "b", "")).Err, sundog.NoSpace)
	require.Nil(t, b.one(t, put(1, "a", strings.Repeat("x", 99))).Err)
	require.Nil(t, b.one(t, del(1, "a")).Err)
	require.Nil(t, b.one(t, incr(1, "n", 1)).Err)
	require.ErrorIs(t, b.one(t, put(3, "k", "")).Err, sundog.NoSpace, "a quota below the number of partitions")

	// Within one request, what came before counts.
	results := b.mutate(t, put(1, "c", strings.Repeat("v", 49)), put(1, "d", strings.Repeat("v", 49)), put(2, "c", "v"), del(1, "n"))
	require.Nil(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, sundog.NoSpace)
	require.Nil(t, results[2].Err)
	require.Nil(t, results[3].Err)
	require.EqualValues(t, 50, b.poolStatus(1).Bytes)

	b.setMap(11, strongPool(1, 40), strongPool(2, 0))
	require.NoError(t, b.SyncPools(ctxOf(t), b.getMap()))
	require.ErrorIs(t, b.one(t, put(1, "d", "")).Err, sundog.NoSpace, "the quota was lowered")
	require.Nil(t, b.one(t, put(1, "c", strings.Repeat("v", 48))).Err, "shrinking is always allowed")
	b.setMap(12, strongPool(1, 0), strongPool(2, 0))
	require.NoError(t, b.SyncPools(ctxOf(t), b.getMap()))
	require.Nil(t, b.one(t, put(1, "d", strings.Repeat("v", 1000))).Err, "and lifted")
}

// Many writers, deletes and deadlines at once: never above the share, nothing
// left reserved in the end (CASES 30).
func TestQuotaUnderConcurrency(t *testing.T) {
	const share = 2000
	b := openSolo(t, testMemory, strongPool(1, 4*share))
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for range 300 {
				var ops []rpc.Op
				for range 1 + rnd.IntN(4) {
					key := fmt.Sprint("k", rnd.IntN(12))
					switch rnd.IntN(6) {
					case 0:
						ops = append(ops, del(1, key))
					case 1:
						ops = append(ops, ttl(put(1, key, strings.Repeat("v", rnd.IntN(700))), time.Millisecond))
					default:
						ops = append(ops, put(1, key, strings.Repeat("v", rnd.IntN(700))))
					}
				}
				for _, r := range b.Mutate(t.Context(), ops) {
					if r.Err != nil && r.Err.Kind != sundog.NoSpace && r.Err.Kind != sundog.NotFound {
						t.Errorf("unexpected: %v", r.Err)
					}
				}
				if used := b.poolStatus(1).Bytes; used > share {
					t.Errorf("%d bytes of %d", used, share)
				}
			}
		})
	}
	writers.Wait()
	b.machine.lock <- struct{}{}
	l := &b.machine.state.pools[1].ledger
	require.Zero(t, l.extra)
	require.Empty(t, l.pending)
	b.machine.unlock()
	nothingPromised(t, b)
}

// Room for a mutation whose outcome is not known stays reserved until it is
// certain that it was applied or never will be.
func TestUnknownKeepsItsRoom(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 400))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	stall := make(chan struct{})
	b.solo.do(func() { b.solo.hide, b.solo.stall = true, stall })
	require.ErrorIs(t, b.one(t, put(1, "b", strings.Repeat("v", 59))).Err, sundog.Unknown)
	b.solo.do(func() { b.solo.hide = false })
	require.ErrorIs(t, b.one(t, put(1, "c", strings.Repeat("v", 59))).Err, sundog.NoSpace, "only 2 of 100 bytes are used, but b may come")
	close(stall) // the barrier behind it: b has come
	nothingPending(t, b)
	require.EqualValues(t, 62, b.poolStatus(1).Bytes)
	require.Nil(t, b.one(t, put(1, "c", strings.Repeat("v", 37))).Err)

	// The end of the reign settles too: the next one begins behind it.
	stall = make(chan struct{})
	b.solo.do(func() { b.solo.hide, b.solo.stall = true, stall })
	require.ErrorIs(t, b.one(t, put(1, "a", "")).Err, sundog.Unknown)
	b.solo.lead(false)
	close(stall) // a barrier under way ends with the leadership
	nothingPending(t, b)
	require.Eventually(t, func() bool {
		_, err := b.arenas.Promise(99, 0, testMemory*2/5, 1) // counts double
		return err == nil
	}, eventually, time.Millisecond)
}

func nothingPending(t *testing.T, b *bench) {
	require.Eventually(t, func() bool {
		b.machine.lock <- struct{}{}
		defer b.machine.unlock()
		return len(b.machine.state.pools[1].ledger.pending) == 0
	}, eventually, time.Millisecond)
}

func nothingPromised(t *testing.T, b *bench) {
	_, err := b.arenas.Promise(99, 0, testMemory*2/5, 1) // counts double
	require.NoError(t, err)
}

func TestBusyPartitionRespectsTheDeadline(t *testing.T) {
	b := openSolo(t, testMemory, strongPool(1, 400), strongPool(2, 0))
	require.Nil(t, b.one(t, put(1, "a", "v")).Err)
	require.Eventually(t, func() bool { return len(b.dirty) == 0 }, eventually, time.Millisecond)
	b.machine.lock <- struct{}{} // as an Apply that waits for a slow snapshot
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Mutate(ctx, []rpc.Op{put(1, "b", "v")})[0].Err, sundog.Timeout)
	require.True(t, b.Status().Leading, "status does not wait")
	b.machine.unlock()
	require.Nil(t, b.one(t, put(1, "b", "v")).Err)
}

// The node's memory runs full: NoSpace before the log with both figures, the
// replica goes on, and what is deleted can be used again.
func TestNodeMemoryIsRefusedBeforeTheLog(t *testing.T) {
	const memory = 64 << 20
	b := openSolo(t, memory, strongPool(1, 0))
	value := strings.Repeat("v", 10_000)
	n := 0
	var refused *sundog.Error
	for ; refused == nil && n < 2*memory/len(value); n++ {
		refused = b.one(t, put(1, fmt.Sprint(n), value)).Err
	}
	require.NotNil(t, refused)
	require.ErrorIs(t, refused, sundog.NoSpace)
	require.EqualValues(t, memory, refused.Limit)
	require.Positive(t, refused.Used)
	require.Empty(t, b.Status().Alarm)
	require.Greater(t, n*len(value), memory/2, "most of the memory is usable")
	require.Equal(t, value, string(b.read(t, 1, "0")[0].Item.Value))
	for i := range 20 {
		b.one(t, del(1, fmt.Sprint(50*i)))
	}
	require.Eventually(t, func() bool { return b.one(t, put(1, "again", value)).Err == nil }, eventually, 10*time.Millisecond, "their slots are free")
	for i := range n / 2 {
		b.one(t, del(1, fmt.Sprint(i)))
	}
	require.Eventually(t, func() bool { return b.one(t, put(1, "larger", strings.Repeat("v", 100_000))).Err == nil }, eventually, 10*time.Millisecond, "chunks come back")
}
