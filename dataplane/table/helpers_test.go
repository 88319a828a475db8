package table

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// newTable makes a table in an arena of its own with that budget.
func newTable(t testing.TB, limit int64) (*Table, *Arena, *dataplane.Memory) {
	mem := dataplane.NewMemory(limit)
	arena := NewArena(mem)
	tab, err := New(Config{Arena: arena, Partition: 3, Incarnation: 0x1234567890abcdef})
	require.NoError(t, err)
	t.Cleanup(func() {
		tab.Close()
		require.NoError(t, arena.Close())
		require.Zero(t, mem.Used())
	})
	return tab, arena, mem
}

func version(n int) sundog.Version { return sundog.Version{Clock: sundog.Clock(n)} }

// telling makes a value of size bytes that tells key and version: it is only
// ever equal to itself, so a reader can check any value by what it says.
func telling(key []byte, v sundog.Version, size int) []byte {
	b := make([]byte, 0, size+32)
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Clock))
	for seed := keyHash(key) ^ uint64(v.Clock)*0x9e3779b97f4a7c15; len(b) < size; seed = seed*6364136223846793005 + 1442695040888963407 {
		b = binary.LittleEndian.AppendUint64(b, seed)
	}
	return b[:size]
}

func told(key []byte, it Item) bool {
	return it.Size == len(it.Value) && bytes.Equal(it.Value, telling(key, it.Version, len(it.Value)))
}

// verify checks every invariant of the table that the writer can see: sums,
// counters, spill counts, and that every key is where its hash says.
func verify(t require.TestingT, tab *Table) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	var s Stats
	demand := int64(0)
	for g := range tab.cur.groups {
		spilled := map[int]int{}
		all := tab.buckets(g)
		for n, k := range all {
			var im image
			require.True(t, im.take(k.b), "bucket sum")
			kind := min(n, kindExtra)
			require.True(t, im.is(tab.incarnation, tab.cur.epoch, g, kind))
			for i := range k.words() {
				w := k.word(i)
				if w == 0 {
					continue
				}
				b, at := tab.itemOf(k, w)
				r, ok := parseItem(b)
				require.True(t, ok && r.live())
				h := keyHash(r.key)
				require.True(t, r.headerHolds(tab.incarnation, at, h), "header sum")
				require.True(t, r.valueHolds(r.value), "value sum")
				place := placeHash(h, w.choice())
				require.Equal(t, g, groupOf(place, tab.cur.groups))
				require.True(t, w.matches(wordFor(h, w.choice())))
				if kind >= kindShared {
					spilled[sideOf(place)]++
				} else {
					require.Equal(t, kind, sideOf(place))
				}
				s.Keys++
				s.LiveBytes += int64(len(r.key) + len(r.value))
				demand += demandOf(len(r.key), len(r.value), r.version, r.deadline)
				if w.inline() {
					s.Inline++
				} else {
					s.ItemBytes += int64(classSize(w.class()))
				}
			}
		}
		for side := range mains {
			require.Equal(t, spilled[side], all[side].spilled())
		}
	}
	s.IndexBytes = tab.stats.IndexBytes
	require.Equal(t, s, tab.stats)
	require.Equal(t, demand, tab.demand)
	require.Equal(t, headerBlockSum(tab.header), loadWord(tab.header, headSum))
	verifyArena(t, tab.arena)
}

// verifyArena counts what the arena counts.
func verifyArena(t require.TestingT, a *Arena) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range []*heap{&a.items, &a.index} {
		var live, reserved int64
		var free [maxClass + 1]int64
		for _, c := range h.chunks {
			reserved += c.region.Size()
			inChunk := int64(0)
			for _, p := range c.pages {
				if p.run > 0 {
					inChunk += int64(p.slots-p.freeSlots) * int64(classSize(p.class))
					if !c.evac.Load() {
						free[p.class] += int64(p.freeSlots)
					}
				}
			}
			require.Equal(t, inChunk, c.live)
			live += inChunk
		}
		require.Equal(t, live, h.live)
		require.Equal(t, reserved, h.reserved)
		require.Equal(t, free, h.free)
	}
}
