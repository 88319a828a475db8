package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

func TestViewLeaders(t *testing.T) {
	m := sampleMap(t)
	a, b := m.Nodes[0].ID, m.Nodes[1].ID
	v := NewView(m)
	require.Same(t, m, v.Map())
	require.Equal(t, m.Epoch, v.Epoch())
	_, ok := v.Leader(3)
	require.False(t, ok)
	owner, ok := v.Owner(3)
	require.True(t, ok)
	require.Equal(t, m.Placement[3][0].Node, owner, "nobody is known to lead: the preferred owner")

	w := v.WithLeader(3, a, 5)
	_, ok = v.Leader(3)
	require.False(t, ok, "the old view is as it was")
	lead, ok := w.Leader(3)
	require.True(t, ok)
	require.Equal(t, a, lead)
	require.Equal(t, uint64(5), w.Term(3))
	owner, _ = w.Owner(3)
	require.Equal(t, a, owner)

	require.Same(t, w, w.WithLeader(3, b, 4), "older news")
	require.Same(t, w, w.WithLeader(3, b, 0), "news without a term")
	require.Same(t, w, w.WithLeader(3, a, 5), "no news")
	require.Same(t, w, w.WithLeader(3, 0xfff, 6), "a node that the map does not have")
	require.Same(t, w, w.WithLeader(8, a, 6), "a partition that the map does not have")
	require.Same(t, w, w.WithoutLeader(3, b), "another leads")

	gone := w.WithoutLeader(3, a)
	_, ok = gone.Leader(3)
	require.False(t, ok)
	require.Same(t, gone, gone.WithLeader(3, b, 4), "the term is remembered")
	lead, _ = gone.WithLeader(3, b, 6).Leader(3)
	require.Equal(t, b, lead)

	all := make(map[sundog.Partition]Leader)
	for p, l := range w.WithLeader(7, b, 1).Leaders() {
		all[p] = l
	}
	require.Equal(t, map[sundog.Partition]Leader{3: {a, 5}, 7: {b, 1}}, all)
	for range w.Leaders() {
		break
	}
}

func TestViewWithMap(t *testing.T) {
	m := sampleMap(t)
	a, b := m.Nodes[0].ID, m.Nodes[1].ID
	v := NewView(m).WithLeader(0, a, 3).WithLeader(1, b, 4)

	next := m.Clone()
	next.Epoch++
	next.Nodes = next.Nodes[1:] // a is gone
	w := v.WithMap(next)
	require.Same(t, next, w.Map())
	_, ok := w.Leader(0)
	require.False(t, ok)
	require.Equal(t, uint64(3), w.Term(0))
	lead, _ := w.Leader(1)
	require.Equal(t, b, lead)
	lead, _ = v.Leader(0)
	require.Equal(t, a, lead, "the old view is as it was")
	require.Same(t, w, w.WithMap(m), "an older map")

	other := m.Clone()
	other.Cluster = "ff" + cluster[2:]
	other.Epoch = 1
	w = v.WithMap(other)
	require.Same(t, other, w.Map())
	_, ok = w.Leader(1)
	require.False(t, ok)
}

func TestViewOfManyPartitions(t *testing.T) {
	m := youngMap()
	m.Partitions = sundog.Slots
	m.Nodes = makeNodes(1)
	v := NewView(m)
	for p := 0; p < sundog.Slots; p += 100 {
		v = v.WithLeader(sundog.Partition(p), m.Nodes[0].ID, uint64(p+1))
	}
	n := 0
	for p, l := range v.Leaders() {
		require.Equal(t, n, int(p))
		require.Equal(t, uint64(p)+1, l.Term)
		n += 100
	}
	_, ok := v.Owner(1)
	require.False(t, ok, "not placed")
}
