package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// TestSharedArena: several tables' writers allocate, free and compact in one
// arena at once, and the arena gives its memory back, though items of all tables
// share its chunks.
func TestSharedArena(t *testing.T) {
	const tables, keys = 4, 4000
	mem := dataplane.NewMemory(1 << 30)
	arena := NewArena(mem)
	all := make([]*Table, tables)
	for i := range all {
		var err error
		all[i], err = New(Config{Arena: arena, Incarnation: uint64(i + 1)})
		require.NoError(t, err)
	}
	each := func(fn func(tab *Table, rng *rand.Rand)) {
		var wg sync.WaitGroup
		for i, tab := range all {
			wg.Go(func() { fn(tab, rand.New(rand.NewPCG(uint64(i), 3))) })
		}
		wg.Wait()
	}
	each(func(tab *Table, rng *rand.Rand) {
		for i := range 3 * keys {
			k := sizedKey(i % keys)
			require.NoError(t, tab.Put(k, telling(k, version(i), rng.IntN(2000)), version(i), 0, 1))
		}
	})
	full := mem.Used()
	each(func(tab *Table, rng *rand.Rand) {
		for i := range keys {
			if i%10 != 0 {
				require.True(t, tab.Delete(sizedKey(i), 1))
			}
		}
	})
	for range 3 { // a round ends when every table has walked
		for _, tab := range all {
			for tab.Compact() {
			}
		}
	}
	t.Logf("%d bytes mapped, then %d: %+v", full, mem.Used(), arena.Stats())
	require.Less(t, mem.Used(), full/3)
	for _, tab := range all {
		verify(t, tab)
		for i := 0; i < keys; i += 10 {
			it, ok := tab.Get(sizedKey(i), nil)
			require.True(t, ok && told(sizedKey(i), it))
		}
	}
	all[0].Close()
	all[0].Close()
	require.ErrorContains(t, arena.Close(), "3 tables are open")
	for _, tab := range all[1:] {
		tab.Close()
	}
	require.NoError(t, arena.Close())
	require.Zero(t, mem.Used())
}

// TestCloseUnderReaders: reads under way when the table and its arena are closed
// end well; later ones find nothing.
func TestCloseUnderReaders(t *testing.T) {
	for round := range 20 {
		mem := dataplane.NewMemory(64 << 20)
		arena := NewArena(mem)
		tab, err := New(Config{Arena: arena, Incarnation: 1})
		require.NoError(t, err)
		for i := range 300 {
			k := sizedKey(i)
			require.NoError(t, tab.Put(k, telling(k, version(1), i), version(1), 0, 1))
		}
		var wg sync.WaitGroup
		started := make(chan struct{}, 2)
		for range 2 {
			wg.Go(func() {
				for i := 0; ; i++ {
					it, ok := tab.Get(sizedKey(i%300), nil)
					if !ok {
						return
					}
					if !told(sizedKey(i%300), it) {
						t.Error("wrong bytes")
					}
					if i == round {
						started <- struct{}{}
					}
				}
			})
		}
		<-started
		<-started
		c := tab.Cut()
		tab.Close()
		seen := 0
		for _, ok := c.Next(); ok; _, ok = c.Next() {
			seen++
		}
		require.Equal(t, 300, seen, "a cut outlives its table")
		c.Close()
		wg.Wait()
		require.NoError(t, arena.Close())
		require.Zero(t, mem.Used())
	}
}

// TestHeader: the header says what a one-sided reader must know.
func TestHeader(t *testing.T) {
	tab, _, _ := newTable(t, 64<<20)
	require.Equal(t, uint64(tableMagic|formatVersion<<32|3<<48), loadWord(tab.header, headMagic))
	require.Equal(t, tab.incarnation, loadWord(tab.header, headIncarnation))
	require.Zero(t, loadWord(tab.header, headActive))
	tab.Activate(9)
	require.Equal(t, uint64(9), loadWord(tab.header, headActive))
	for i := range 3000 {
		require.NoError(t, tab.Put(fmt.Appendf(nil, "%d", i), make([]byte, 150), version(1), 0, uint64(i)))
	}
	require.Equal(t, uint64(9), loadWord(tab.header, headActive))
	require.Equal(t, headerBlockSum(tab.header), loadWord(tab.header, headSum))
	groups := loadWord(tab.header, headGroups)
	require.Equal(t, tab.cur.groups, uint32(groups))
	require.Equal(t, uint64(len(tab.cur.segs)), groups>>32)
	// The directory names the segments, and a bucket found by it is the one.
	dir := address(loadWord(tab.header, headDirectory) & (1<<addressBits - 1))
	for i := range tab.cur.segs {
		at := address(loadWord(tab.arena.bytes(dir, 8*(i+1)), 8*i))
		require.Equal(t, tab.cur.segs[i].at, at)
		require.Equal(t, tab.incarnation, loadWord(tab.arena.bytes(at, bucketSize), offIncarnation))
	}
	// The newest term that touched a bucket is there, for deletes too.
	key := []byte("17")
	require.True(t, tab.Delete(key, 77777))
	for _, c := range candidatesOf(keyHash(key), tab.cur.groups) {
		if loadWord(mainOf(tab.cur, c).b, offTerm) == 77777 {
			tab.Close()
			return
		}
	}
	t.Fatal("no candidate carries the term of the delete")
}

// TestFreeSlots: what the arena says it takes without more memory, it takes.
func TestFreeSlots(t *testing.T) {
	for _, size := range []int{200, 1000, 1008, 5000, 40_000} {
		tab, arena, mem := newTable(t, 2<<20)
		var err error
		n := 0
		for ; err == nil; n++ {
			err = tab.Put(sizedKey(n), make([]byte, size), version(1), 0, 1)
		}
		require.ErrorIs(t, err, sundog.NoSpace)
		require.Zero(t, arena.FreeSlots(16, size))
		for i := 0; i < n/3; i++ {
			tab.Delete(sizedKey(i), 1)
		}
		arena.tidy()
		used, free := mem.Used(), arena.FreeSlots(16, size)
		if mediumMax > size {
			require.Positive(t, free)
		}
		for i := range int(free) {
			require.NoError(t, tab.Put(sizedKey(i), make([]byte, size), version(1), 0, 1))
		}
		require.Equal(t, used, mem.Used())
		verify(t, tab)
	}
}
