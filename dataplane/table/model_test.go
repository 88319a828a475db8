package table

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

type modelItem struct {
	value    []byte
	version  sundog.Version
	deadline int64
}

// model drives a table and a Go map with the same operations.
type model struct {
	tab   *Table
	arena *Arena
	mem   *dataplane.Memory
	items map[string]modelItem
	clock int
	cuts  []modelCut
}

type modelCut struct {
	cut  *Cut
	want map[string]modelItem
	got  map[string]bool
}

func (m *model) live() (n int64) {
	for k, it := range m.items {
		n += int64(len(k) + len(it.value))
	}
	return n
}

func (m *model) key(t *rapid.T) []byte {
	n := rapid.IntRange(0, 120).Draw(t, "key")
	key := []byte(fmt.Sprintf("key-%d", n))
	if n%17 == 0 {
		key = append(key, bytes.Repeat([]byte{'x'}, 200+n*7)...)
	}
	return key
}

func (m *model) put(t *rapid.T) {
	key := m.key(t)
	m.clock++
	v := version(m.clock)
	if rapid.IntRange(0, 3).Draw(t, "node") == 0 {
		v.Node = 7
	}
	deadline := int64(0)
	if rapid.IntRange(0, 2).Draw(t, "due") == 0 {
		deadline = int64(m.clock) * 1000
	}
	size := rapid.OneOf(rapid.IntRange(0, 250), rapid.IntRange(0, 3000), rapid.IntRange(30000, 50000)).Draw(t, "size")
	value := telling(key, v, size)
	before := m.tab.Stats()
	err := m.tab.Put(key, value, v, deadline, uint64(m.clock))
	if err != nil {
		require.ErrorIs(t, err, sundog.NoSpace)
		after := m.tab.Stats()
		require.Equal(t, before.LiveBytes, after.LiveBytes)
		require.Equal(t, before.Keys, after.Keys)
		return
	}
	m.items[string(key)] = modelItem{value, v, deadline}
}

func (m *model) remove(t *rapid.T) {
	key := m.key(t)
	m.clock++
	_, want := m.items[string(key)]
	require.Equal(t, want, m.tab.Delete(key, uint64(m.clock)))
	delete(m.items, string(key))
}

func (m *model) removeMany(t *rapid.T) {
	for k := range m.items {
		if keyHash([]byte(k))%8 != 0 {
			require.True(t, m.tab.Delete([]byte(k), uint64(m.clock)))
			delete(m.items, k)
		}
	}
	for m.tab.Compact() {
	}
}

func (m *model) get(t *rapid.T) {
	key := m.key(t)
	want, there := m.items[string(key)]
	it, ok := m.tab.Get(key, []byte("before"))
	require.Equal(t, there, ok)
	meta, metaOK := m.tab.Lookup(key)
	require.Equal(t, there, metaOK)
	if there {
		require.Equal(t, append([]byte("before"), want.value...), it.Value)
		require.Equal(t, Item{Version: want.version, Deadline: want.deadline, Size: len(want.value)}, meta)
		it.Value = nil
		require.Equal(t, meta, it)
	}
}

func (m *model) scan(t *rapid.T) {
	limit := rapid.IntRange(1, 40).Draw(t, "limit")
	stop := rapid.Bool().Draw(t, "stop")
	got := map[string]bool{}
	for cursor, n := uint64(0), 0; n == 0 || cursor != 0; n++ {
		require.Less(t, n, 1000)
		cursor = m.tab.Scan(cursor, limit, func(key []byte, it Item) bool {
			want, ok := m.items[string(key)]
			require.True(t, ok)
			require.False(t, got[string(key)], "seen twice with no write between")
			require.True(t, bytes.Equal(want.value, it.Value) && want.version == it.Version && want.deadline == it.Deadline)
			got[string(key)] = true
			return !stop
		})
	}
	require.Len(t, got, len(m.items))
}

func (m *model) openCut(t *rapid.T) {
	if len(m.cuts) >= 3 {
		t.Skip("enough cuts")
	}
	want := map[string]modelItem{}
	for k, it := range m.items {
		want[k] = it
	}
	m.cuts = append(m.cuts, modelCut{m.tab.Cut(), want, map[string]bool{}})
}

func (m *model) readCut(t *rapid.T) {
	if len(m.cuts) == 0 {
		t.Skip("no cut")
	}
	i := rapid.IntRange(0, len(m.cuts)-1).Draw(t, "cut")
	c := m.cuts[i]
	for range rapid.IntRange(1, 200).Draw(t, "entries") {
		e, ok := c.cut.Next()
		if !ok {
			require.NoError(t, c.cut.Err())
			require.Len(t, c.got, len(c.want))
			c.cut.Close()
			m.cuts = append(m.cuts[:i:i], m.cuts[i+1:]...)
			return
		}
		want, in := c.want[string(e.Key)]
		require.True(t, in, "key not in the cut")
		require.False(t, c.got[string(e.Key)], "key twice")
		require.True(t, bytes.Equal(want.value, e.Value) && want.version == e.Version && want.deadline == e.Deadline)
		c.got[string(e.Key)] = true
	}
}

func (m *model) dropCut(t *rapid.T) {
	if len(m.cuts) == 0 {
		t.Skip("no cut")
	}
	m.cuts[0].cut.Close()
	m.cuts = m.cuts[1:]
}

// check holds after every operation.
func (m *model) check(t *rapid.T) {
	s := m.tab.Stats()
	require.Equal(t, m.live(), s.LiveBytes)
	require.Equal(t, int64(len(m.items)), s.Keys)
	a := m.arena.Stats()
	require.LessOrEqual(t, a.Live, a.Reserved)
	require.Equal(t, a.Reserved, m.mem.Used())
	require.LessOrEqual(t, a.Reserved, m.mem.Limit())
	verify(t, m.tab)
}

// TestModel: whatever is done, the table is the map, its counters are exact and
// its structure sound. Budgets are small enough for NoSpace in some runs.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int64{256 << 10, 600 << 10, 64 << 20}).Draw(t, "limit")
		mem := dataplane.NewMemory(limit)
		arena := NewArena(mem)
		tab, err := New(Config{Arena: arena, Incarnation: 99})
		require.NoError(t, err)
		m := &model{tab: tab, arena: arena, mem: mem, items: map[string]modelItem{}}
		// A cut that nobody reads may stop the writer; with one goroutine here the
		// model has cuts only where memory does not run out.
		actions := map[string]func(*rapid.T){
			"": m.check, "put": m.put, "put2": m.put, "put3": m.put, "delete": m.remove, "get": m.get, "scan": m.scan, "deleteMany": m.removeMany,
		}
		if limit > 1<<20 {
			actions["cut"], actions["readCut"], actions["dropCut"] = m.openCut, m.readCut, m.dropCut
		}
		t.Repeat(actions)
		for _, c := range m.cuts {
			c.cut.Close()
		}
		tab.Close()
		_, ok := tab.Get([]byte("key-1"), nil)
		require.False(t, ok)
		require.NoError(t, arena.Close())
		require.Zero(t, mem.Used())
	})
}
