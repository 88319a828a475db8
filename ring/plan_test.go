package ring

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
)

// reporter is what *testing.T and *rapid.T share.
type reporter interface {
	require.TestingT
	Helper()
}

func makeNodes(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: nodeID(i), Weight: 1}
	}
	return nodes
}

func nodeID(i int) sundog.NodeID { return sundog.NodeID(mix(i, 1) | 1) }

// facts are what a placement comes to, by node index.
type facts struct {
	layout   *layout
	load     []int
	leads    []int
	original [][]int32 // the lists, nodes that are not there left out
}

func survey(placement []Replicas, nodes []Node, replicas int) facts {
	nodes, err := checkNodes(nodes, replicas)
	if err != nil {
		panic(err)
	}
	f := facts{layout: newLayout(nodes, len(placement), replicas), load: make([]int, len(nodes)), leads: make([]int, len(nodes))}
	index := make(map[sundog.NodeID]int)
	for i, n := range nodes {
		index[n.ID] = i
	}
	for _, list := range placement {
		var in []int32
		for i, r := range list {
			n, ok := index[r.Node]
			if !ok {
				continue
			}
			in = append(in, int32(n))
			f.load[n]++
			if i == 0 {
				f.leads[n]++
			}
		}
		f.original = append(f.original, in)
	}
	return f
}

// checkPlacement asserts every bound of docs/ring.md but the number of moves.
func checkPlacement(t reporter, placement []Replicas, nodes []Node, replicas int) {
	t.Helper()
	f := survey(placement, nodes, replicas)
	l := f.layout
	for p, list := range f.original {
		require.Len(t, placement[p], replicas, "partition %d", p)
		require.Len(t, list, replicas, "partition %d is on a node that is not there", p)
		zones := make(map[int]bool)
		for i, n := range list {
			require.NotContains(t, list[:i], n, "partition %d is twice on a node", p)
			zones[l.zone[n]] = true
		}
		require.Len(t, zones, l.spread, "zones of partition %d", p)
	}
	for n := range f.load {
		require.LessOrEqual(t, f.load[n], l.high[n], "replicas of node %d: %v of %v", n, f.load, l.fair)
		require.GreaterOrEqual(t, f.load[n], l.low[n], "replicas of node %d: %v of %v", n, f.load, l.fair)
		require.LessOrEqual(t, f.leads[n], l.leadHigh[n], "leaders of node %d: %v", n, f.leads)
	}
}

// checkMoves asserts that the moves lead from current to target one replica at a
// time and returns how many replicas are added.
func checkMoves(t reporter, current, target []Replicas, moves []Move) (added int) {
	t.Helper()
	at := clonePlacement(current)
	for _, mv := range moves {
		require.False(t, mv.Add == 0 && mv.Remove == 0, "an empty move")
		list, err := mv.Apply(at[mv.Partition], 0)
		require.NoError(t, err)
		require.InDelta(t, len(list), len(at[mv.Partition]), 1)
		at[mv.Partition] = list
		if mv.Add != 0 {
			added++
		}
	}
	require.Len(t, target, len(current))
	for p := range at {
		require.ElementsMatch(t, target[p], at[p], "partition %d", p)
	}
	return added
}

// checkPlan plans, asserts everything, and returns the target with incarnations
// given.
func checkPlan(t reporter, current []Replicas, nodes []Node, replicas int) (target []Replicas, added, ideal int) {
	t.Helper()
	before := clonePlacement(current)
	target, moves, err := Plan(current, nodes, replicas)
	require.NoError(t, err)
	require.Equal(t, before, current, "Plan changed its argument")
	added = checkMoves(t, current, target, moves)
	checkPlacement(t, target, nodes, replicas)
	f := survey(current, nodes, replicas)
	if len(current)*len(nodes) <= 1500 {
		var ok bool
		ideal, ok = idealMoves(f.layout, f.original)
		require.True(t, ok, "no placement obeys the layout %+v", f.layout)
	} else {
		ideal = lowerBound(f)
	}
	again, moves, err := Plan(settle(target), nodes, replicas)
	require.NoError(t, err)
	require.Empty(t, moves, "a second plan moves again")
	require.Equal(t, settle(target), again, "a second plan changes the order")
	return settle(target), added, ideal
}

// lowerBound is a bound on the moves that holds whatever the zones: who is above
// the band must give, what is missing must be added, who is below it must get.
func lowerBound(f facts) int {
	give, get := len(f.original)*f.layout.replicas, 0
	for n, load := range f.load {
		give -= min(load, f.layout.high[n])
		get += max(0, f.layout.low[n]-load)
	}
	return max(give, get)
}

func settle(target []Replicas) []Replicas {
	out := clonePlacement(target)
	for p := range out {
		for i := range out[p] {
			out[p][i].Incarnation = 1
		}
	}
	return out
}

// world draws nodes that come and go.
type world struct {
	next    int
	zones   int
	weights bool
	nodes   []Node
}

func (w *world) join(t *rapid.T, n int) {
	for range n {
		node := Node{ID: nodeID(w.next), Weight: 1}
		if w.zones > 0 {
			node.Zone = fmt.Sprint("z", rapid.IntRange(0, w.zones-1).Draw(t, "zone"))
		}
		if w.weights {
			node.Weight = rapid.IntRange(1, 4).Draw(t, "weight")
		}
		w.next++
		w.nodes = append(w.nodes, node)
	}
}

func (w *world) die(t *rapid.T, n int) {
	for range n {
		i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "dead")
		w.nodes = slices.Delete(w.nodes, i, i+1)
	}
}

func TestPlanKeepsEveryBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := 1 << rapid.IntRange(0, 6).Draw(t, "log P")
		replicas := rapid.IntRange(1, 5).Draw(t, "replicas")
		w := &world{zones: rapid.IntRange(0, 5).Draw(t, "zones"), weights: rapid.Bool().Draw(t, "weights")}
		w.join(t, replicas+rapid.IntRange(0, 9).Draw(t, "nodes"))
		placement, err := Bootstrap(w.nodes, partitions, replicas)
		require.NoError(t, err)
		checkPlacement(t, placement, w.nodes, replicas)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			w.die(t, rapid.IntRange(0, min(2, len(w.nodes)-replicas)).Draw(t, "deaths"))
			w.join(t, rapid.IntRange(0, 3).Draw(t, "joins"))
			var added, ideal int
			placement, added, ideal = checkPlan(t, placement, w.nodes, replicas)
			require.LessOrEqual(t, 10*added, 11*ideal, "moves against the ideal")
		}
	})
}
