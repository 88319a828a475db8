package strong

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

func TestVersionsRiseInLogOrder(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	first := r.one(t, 1000, put(7, "a", "1"))
	require.Nil(t, first.Err)
	require.Equal(t, sundog.Version{Clock: at(1000)}, first.Version)
	second := r.one(t, 900, put(7, "b", "2")) // a later leader's clock is behind
	require.Equal(t, sundog.Version{Clock: at(1000) + 1}, second.Version)
	gone := r.one(t, 2000, del(7, "b"))
	require.Equal(t, sundog.Version{Clock: at(2000)}, gone.Version, "a deletion takes a version")
	again := r.one(t, 1500, ifAbsent(put(7, "b", "3")))
	require.Nil(t, again.Err)
	require.Equal(t, sundog.Version{Clock: at(2000) + 1}, again.Version, "above that of the deletion")

	copied := newReplica(t, testArenas())
	require.NoError(t, copied.Restore(strings.NewReader(string(r.saved(t)))))
	require.Equal(t, again.Version, copied.state.highest)
}

func TestConditions(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	v := r.one(t, 1, put(7, "k", "old")).Version
	for name, c := range map[string]struct {
		op   rpc.Op
		kind sundog.Kind
		has  sundog.Version
	}{
		"absent, but it is there":   {ifAbsent(put(7, "k", "new")), sundog.Exists, v},
		"another version":           {ifVersion(put(7, "k", "new"), sundog.Version{Clock: 5}), sundog.Conflict, v},
		"a version, but it is gone": {ifVersion(put(7, "x", "new"), v), sundog.Conflict, sundog.Version{}},
		"no version, but there":     {ifVersion(put(7, "k", "new"), sundog.Version{}), sundog.Conflict, v},
		"delete another version":    {ifVersion(del(7, "k"), sundog.Version{Clock: 5}), sundog.Conflict, v},
		"delete what is not there":  {del(7, "x"), sundog.NotFound, sundog.Version{}},
		"count another version":     {ifVersion(incr(7, "k", 1), sundog.Version{Clock: 5}), sundog.Conflict, v},
		"count what is no counter":  {incr(7, "k", 1), sundog.Invalid, v},
		"a pool that is not here":   {put(8, "k", "new"), sundog.Stale, sundog.Version{}},
		"no key":                    {put(7, "", "new"), sundog.Invalid, sundog.Version{}},
		"a key too long":            {put(7, strings.Repeat("k", sundog.MaxKey+1), ""), sundog.Invalid, sundog.Version{}},
	} {
		before := r.contents()
		got := r.one(t, 1, c.op)
		require.ErrorIs(t, got.Err, c.kind, name)
		require.Equal(t, c.has, got.Version, name)
		require.Equal(t, before, r.contents(), "%s: it changed something", name)
	}
	got := r.one(t, 2, ifVersion(put(7, "k", "new"), v))
	require.Nil(t, got.Err)
	require.Nil(t, r.one(t, 2, ifVersion(put(7, "fresh", ""), sundog.Version{})).Err, "no version is absent")
	require.Nil(t, r.one(t, 2, ifVersion(del(7, "k"), got.Version)).Err)
	r.checkAccounts(t)
}

func TestCounters(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	require.EqualValues(t, 5, r.one(t, 1, incr(7, "n", 5)).Int)
	require.EqualValues(t, -2, r.one(t, 1, incr(7, "n", -7)).Int)
	h, _ := r.get(7, "n")
	require.Equal(t, counter(-2), h.value)

	r.one(t, 1, put(7, "max", counter(math.MaxInt64)))
	r.one(t, 1, put(7, "min", counter(math.MinInt64)))
	for _, op := range []rpc.Op{incr(7, "max", 1), incr(7, "min", -1), incr(7, "min", math.MinInt64), incr(7, "max", math.MaxInt64)} {
		before := r.contents()
		require.ErrorIs(t, r.one(t, 1, op).Err, sundog.Invalid)
		require.Equal(t, before, r.contents())
	}
	require.EqualValues(t, -1, r.one(t, 1, incr(7, "max", math.MinInt64)).Int)
	require.EqualValues(t, -1, r.one(t, 1, incr(7, "min", math.MaxInt64)).Int)
	require.EqualValues(t, math.MinInt64, r.one(t, 1, incr(7, "low", math.MinInt64)).Int)

	r.one(t, 1000, ttl(incr(7, "brief", 1), time.Second))
	r.one(t, 1500, incr(7, "brief", 1))
	h, _ = r.get(7, "brief")
	require.Equal(t, held{counter(2), h.version, 2000}, h, "counting keeps the deadline")
	r.one(t, 1500, ttl(incr(7, "brief", 1), 2*time.Second))
	h, _ = r.get(7, "brief")
	require.EqualValues(t, 3500, h.deadline)
}

// An expired key is absent for every verb (CASES 13), by the log's time alone.
func TestExpiredIsAbsent(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	v := r.one(t, 1000, ttl(put(7, "k", "v"), 50*time.Millisecond)).Version
	_, ok := r.get(7, "k")
	require.True(t, ok)
	require.ErrorIs(t, r.one(t, 1049, ifAbsent(put(7, "k", "w"))).Err, sundog.Exists)
	require.ErrorIs(t, r.one(t, 1050, ifVersion(put(7, "k", "w"), v)).Err, sundog.Conflict, "gone at its deadline")

	set := func() { require.Nil(t, r.one(t, 2000, ttl(put(7, "k", "v"), 50*time.Millisecond)).Err) }
	set()
	require.ErrorIs(t, r.one(t, 2300, del(7, "k")).Err, sundog.NotFound)
	r.state.clock = at(2000)
	set()
	require.Nil(t, r.one(t, 2300, ifAbsent(put(7, "k", "w"))).Err)
	r.one(t, 2300, del(7, "k"))
	r.state.clock = at(2000)
	set()
	require.EqualValues(t, 1, r.one(t, 2300, incr(7, "k", 1)).Int, "counts from nothing")
	h, _ := r.get(7, "k")
	require.Zero(t, h.deadline, "and for ever")

	// Time never goes back: a deadline counts from the latest time there was.
	r.one(t, 100, ttl(put(7, "late", "v"), 50*time.Millisecond))
	h, _ = r.get(7, "late")
	require.EqualValues(t, 2350, h.deadline)
	r.apply(2349, appendTick(nil))
	_, ok = r.get(7, "late")
	require.True(t, ok)
	r.apply(2350) // an entry without commands moves time too
	_, ok = r.get(7, "late")
	require.False(t, ok)
	r.checkAccounts(t)
}

func TestOverwriteEndsTheOldDeadline(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	r.one(t, 1000, ttl(put(7, "a", "v"), 50*time.Millisecond))
	r.one(t, 1000, put(7, "a", "w"))
	r.one(t, 1000, ttl(put(7, "b", "v"), 50*time.Millisecond))
	r.one(t, 1000, ttl(put(7, "b", "w"), time.Hour))
	r.one(t, 1000, ttl(put(7, "c", "v"), 50*time.Millisecond))
	r.one(t, 1000, del(7, "c"))
	r.one(t, 1000, put(7, "c", "w"))
	require.EqualValues(t, 1050, r.due.Load())
	r.apply(5000, appendTick(nil))
	for _, key := range []string{"a", "b", "c"} {
		h, ok := r.get(7, key)
		require.True(t, ok, key)
		require.Equal(t, "w", h.value)
	}
	require.Equal(t, 1, r.state.due.len())
	require.EqualValues(t, 1000+time.Hour.Milliseconds(), r.due.Load())
	require.Zero(t, r.state.due.stale)
}

func TestQueueOfDeadlinesStaysWithinTheKeys(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(1, 7)
	for range 20 * staleAllowed {
		r.one(t, 1, ttl(put(7, "k", ""), time.Hour+time.Duration(r.index)*time.Millisecond))
	}
	require.LessOrEqual(t, r.state.due.len(), 2*staleAllowed+2)
	require.LessOrEqual(t, len(r.state.due.chunks), 2)
}

func TestPoolSets(t *testing.T) {
	arenas := testArenas()
	r := newReplica(t, arenas).withPools(10, 1, 2)
	r.do(t, 1, put(1, "k", "one"), ttl(put(2, "k", "two"), time.Second))
	r.apply(1, poolsCommand(9, 1, 2, 3))
	r.apply(1, poolsCommand(10, 3))
	require.Len(t, r.state.pools, 2, "an older or equal index is ignored")
	r.apply(1, poolsCommand(12, 1, 3))
	require.ErrorIs(t, r.one(t, 1, put(2, "k", "late")).Err, sundog.Stale)
	require.Nil(t, r.one(t, 1, put(3, "k", "three")).Err)
	h, ok := r.get(1, "k")
	require.True(t, ok)
	require.Equal(t, "one", h.value)
	require.EqualValues(t, neverDeadline, r.due.Load(), "the dropped pool's deadlines went with it")
	require.EqualValues(t, 12, r.guard.current.Load().catalog)

	spec := poolSpec{id: 1, quota: 100, maxValue: 10}
	r.apply(1, appendPools(nil, poolSet{catalog: 13, pools: []poolSpec{spec}}))
	require.Equal(t, spec, *r.state.pools[1].spec.Load())
	h, _ = r.get(1, "k")
	require.Equal(t, "one", h.value, "a new spec keeps the data")
}

// A replica that does not know a command, or cannot read one, must not go on.
func TestStopsAtWhatItCannotDo(t *testing.T) {
	for name, command := range map[string][]byte{
		"a later release's kind": {200, 1, 2},
		"empty":                  {},
		"ops cut off":            appendOps(nil, []rpc.Op{put(7, "k", "v")})[:9],
		"no ops":                 {byte(kindOps)},
		"tick with a tail":       append(appendTick(nil), 1),
		"check cut off":          appendCheck(nil, 1, 2)[:5],
		"pools cut off":          poolsCommand(9, 1, 2)[:20],
		"pools with a tail":      append(poolsCommand(9, 1), 0),
		"pools out of order":     poolsCommand(9, 2, 1),
	} {
		r := newReplica(t, testArenas()).withPools(1, 7)
		require.NotNil(t, r.apply(1, appendOps(nil, []rpc.Op{put(7, "k", "v")})), name)
		require.Nil(t, r.apply(2, command), name)
		require.ErrorIs(t, r.stopped.Load(), sundog.Corrupt, name)
		require.Nil(t, r.guard.current.Load(), "%s: nothing is shown", name)
		require.Nil(t, r.apply(3, appendOps(nil, []rpc.Op{put(7, "k", "v")})), "%s: for good", name)
		_, err := r.Snapshot()
		require.ErrorIs(t, err, sundog.Corrupt, name)
	}
}

func TestEveryResultHasItsCommand(t *testing.T) {
	r := newReplica(t, testArenas())
	results := r.apply(5, appendTick(nil), poolsCommand(3, 7), appendOps(nil, []rpc.Op{put(7, "a", ""), put(9, "a", "")}),
		appendCheck(nil, 4, 7), appendOps(nil, []rpc.Op{del(7, "a")}))
	require.Len(t, results, 5)
	require.Nil(t, results[0])
	require.Nil(t, results[1])
	ops := results[2].([]rpc.OpResult)
	require.Nil(t, ops[0].Err)
	require.ErrorIs(t, ops[1].Err, sundog.Stale)
	require.Nil(t, results[4].([]rpc.OpResult)[0].Err)
	require.Len(t, r.jobs, 1)
	sum, ok := r.jobs[0].hash(make(life))
	require.True(t, ok)
	require.EqualValues(t, 1, sum.Keys, "as of the check, not as of later")
	require.EqualValues(t, 1, sum.Index)
}
