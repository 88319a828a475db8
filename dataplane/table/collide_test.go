package table

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// colliding returns 16-byte keys of one xxHash64: each lane's round can be
// undone, so the second lane is solved for any first one.
func colliding(t *testing.T, n int) [][]byte {
	const prime1, prime2, prime4 = 11400714785074694791, 14029467366897019727, 9650029242287828579
	inverse := func(p uint64) uint64 {
		x := p // right in the lowest 3 bits; each step doubles them
		for range 6 {
			x *= 2 - p*x
		}
		return x
	}
	round := func(x uint64) uint64 { return bits.RotateLeft64(x*prime2, 31) * prime1 }
	unround := func(y uint64) uint64 { return bits.RotateLeft64(y*inverse(prime1), -31) * inverse(prime2) }
	const seed = 2870177450012600261 + 16 // prime5 + length
	lane := func(h, x uint64) uint64 { return bits.RotateLeft64(h^round(x), 27)*prime1 + prime4 }
	target := lane(seed, 0)
	keys := make([][]byte, n)
	for i := range keys {
		first := uint64(i)
		second := unround(lane(seed, first) ^ target)
		keys[i] = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), second)
		require.Equal(t, keyHash(keys[0]), keyHash(keys[i]))
	}
	return keys
}

// TestOneHash: keys of one hash, as an enemy can make them, all stay readable,
// cost only their own bucket's time, and go again; the table goes on growing.
func TestOneHash(t *testing.T) {
	tab, _, _ := newTable(t, 1<<30)
	keys := colliding(t, 1500)
	absent := colliding(t, 1501)[1500]
	for i, key := range keys {
		require.NoError(t, tab.Put(key, telling(key, version(i+1), i%300), version(i+1), 0, 1))
	}
	for i := range 3000 {
		require.NoError(t, tab.Put(sizedKey(i), telling(sizedKey(i), version(1), 100), version(1), 0, 1))
	}
	require.Greater(t, tab.Stats().Groups, int64(150), "the table grew")
	verify(t, tab)
	g, _ := tab.locate(keys[0], keyHash(keys[0]))
	require.Greater(t, len(tab.buckets(g.group)), bucketKinds, "extra buckets are in use")
	for i, key := range keys {
		it, ok := tab.Get(key, nil)
		require.True(t, ok && told(key, it), "key %d", i)
	}
	_, ok := tab.Get(absent, nil)
	require.False(t, ok)
	seen := 0
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		cursor = tab.Scan(cursor, 10, func([]byte, Item) bool { seen++; return false })
	}
	require.GreaterOrEqual(t, seen, 4500)
	c := tab.Cut()
	for i, key := range keys {
		require.Equal(t, true, tab.Delete(key, 2), "key %d", i)
		_, ok := tab.Get(key, nil)
		require.False(t, ok)
		if i%100 == 0 {
			c.Next()
		}
	}
	c.Close()
	verify(t, tab)
	for i := range 3000 {
		require.True(t, tab.Delete(sizedKey(i), 2))
	}
	for tab.Compact() {
	}
	verify(t, tab)
	require.Less(t, tab.Stats().Groups, int64(60))
	require.Zero(t, tab.Stats().LiveBytes)
}

// TestNoSpace: a table fills the budget nearly to its last byte, says NoSpace
// with used and limit, has changed nothing then, and works on.
func TestNoSpace(t *testing.T) {
	for _, size := range []int{0, 10, 100, 500, 5000, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const limit = 1 << 20
			tab, arena, mem := newTable(t, limit)
			n := 0
			var err error
			for ; ; n++ {
				before := tab.Stats()
				if err = tab.Put(sizedKey(n), telling(sizedKey(n), version(1), size), version(1), 0, 1); err != nil {
					after := tab.Stats()
					require.Equal(t, before.Keys, after.Keys)
					require.Equal(t, before.LiveBytes, after.LiveBytes)
					break
				}
			}
			require.ErrorIs(t, err, sundog.NoSpace)
			e := sundog.AsError(err)
			require.Equal(t, int64(limit), e.Limit)
			require.Positive(t, e.Used)
			verify(t, tab)
			for i := range n {
				it, ok := tab.Get(sizedKey(i), nil)
				require.True(t, ok && told(sizedKey(i), it))
			}
			t.Logf("%d entries, live %d of %d mapped %d: %v", n, tab.Stats().LiveBytes, limit, mem.Used(), err)
			// A failed overwrite leaves the old value.
			big := make([]byte, 300_000)
			require.ErrorIs(t, tab.Put(sizedKey(0), big, version(9), 0, 1), sundog.NoSpace)
			it, ok := tab.Get(sizedKey(0), nil)
			require.True(t, ok && it.Version == version(1) && told(sizedKey(0), it))
			verify(t, tab)
			// Room comes back with deletes.
			for i := range n {
				require.True(t, tab.Delete(sizedKey(i), 1))
			}
			for tab.Compact() {
			}
			require.NoError(t, tab.Put(sizedKey(0), big, version(9), 0, 1))
			verify(t, tab)
			require.LessOrEqual(t, arena.Stats().Reserved, int64(limit))
		})
	}
}

// TestLimits: what no table takes is refused and named.
func TestLimits(t *testing.T) {
	tab, arena, _ := newTable(t, 64<<20)
	require.ErrorIs(t, tab.Put(nil, nil, version(1), 0, 1), sundog.Invalid)
	require.ErrorIs(t, tab.Put(make([]byte, sundog.MaxKey+1), nil, version(1), 0, 1), sundog.Invalid)
	require.ErrorIs(t, tab.Put([]byte("k"), make([]byte, sundog.MaxValue+1), version(1), 0, 1), sundog.TooLarge)
	require.False(t, tab.Delete(nil, 1))
	key, value := make([]byte, sundog.MaxKey), make([]byte, sundog.MaxValue)
	v := sundog.Version{Clock: 1, Node: 2}
	require.NoError(t, tab.Put(key, value, v, 5, 1))
	it, ok := tab.Get(key, nil)
	require.True(t, ok)
	require.Equal(t, Item{Version: v, Deadline: 5, Size: len(value), Value: value}, it)
	require.NoError(t, tab.Put([]byte("empty"), nil, v, 0, 1))
	it, ok = tab.Get([]byte("empty"), nil)
	require.True(t, ok)
	require.Empty(t, it.Value)
	verify(t, tab)
	require.ErrorIs(t, arena.Close(), sundog.Conflict)
	_, err := New(Config{Arena: arena})
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = New(Config{Arena: NewArena(dataplane.NewMemory(1000)), Incarnation: 1})
	require.ErrorIs(t, err, sundog.NoSpace)
	tab.Close()
	require.ErrorIs(t, tab.Put([]byte("k"), nil, v, 0, 1), sundog.Closed)
	require.False(t, tab.Delete([]byte("k"), 1))
	require.Zero(t, tab.Scan(0, 10, func([]byte, Item) bool { return true }))
	_, ok = tab.Cut().Next()
	require.False(t, ok)
}

// TestOneHashNoSpace: the same in a budget that ends amid extra buckets: splits
// and puts that fail leave a sound table.
func TestOneHashNoSpace(t *testing.T) {
	for limit := int64(400 << 10); limit < 900<<10; limit += 48 << 10 {
		tab, _, _ := newTable(t, limit)
		keys := colliding(t, 4000)
		n, failed := 0, 0
		for i := 0; failed < 20 && i < len(keys); i++ {
			if tab.Put(keys[i], telling(keys[i], version(i+1), 40), version(i+1), 0, 1) != nil {
				failed++
			} else {
				n++
			}
			if tab.Put(sizedKey(i), telling(sizedKey(i), version(1), 100), version(1), 0, 1) == nil {
				n++
			}
		}
		require.Equal(t, 20, failed)
		require.Equal(t, int64(n), tab.Stats().Keys)
		verify(t, tab)
		tab.Close()
	}
}

// TestDamage: bits that flip in the memory are found, never handed out, by Get,
// Scan and Cut alike.
func TestDamage(t *testing.T) {
	for _, size := range []int{50, 500} {
		tab, _, _ := newTable(t, 64<<20)
		key := []byte("key")
		require.NoError(t, tab.Put(key, telling(key, version(1), size), version(1), 0, 1))
		c := tab.Cut()
		at := whereIs(tab, key)
		tab.arena.bytes(at.at, at.size)[itemFixed+len(key)+20] ^= 4
		corrupt := func(fn func()) {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok)
				require.ErrorIs(t, err, sundog.Corrupt)
			}()
			fn()
		}
		corrupt(func() { tab.Get(key, nil) })
		corrupt(func() { tab.Scan(0, 10, func([]byte, Item) bool { return true }) })
		_, ok := c.Next()
		require.False(t, ok)
		require.ErrorIs(t, c.Err(), sundog.Corrupt)
		c.Close()
		require.True(t, tab.Delete(key, 1), "the writer gets rid of it")
	}
	tab, _, _ := newTable(t, 64<<20)
	tab.mu.Lock()
	tab.buckets(0)[2].b[offTerm] ^= 1
	tab.mu.Unlock()
	require.Panics(t, func() {
		for i := range 64 { // some of them belong to the damaged bucket
			tab.Get(sizedKey(i), nil)
		}
	})
}
