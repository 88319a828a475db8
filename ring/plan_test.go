package ring

import (
	"fmt"
	"math/rand/v2"
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
		zones := make(map[int]bool)
		for i, n := range list {
			if slices.Contains(list[:i], n) {
				require.Fail(t, "twice on a node", "partition %d: %v", p, list)
			}
			zones[l.zone[n]] = true
		}
		if len(placement[p]) != replicas || len(list) != replicas || len(zones) != l.spread {
			require.Fail(t, "wrong replicas", "partition %d: %v, of which %v are there, in %d zones of %d", p, placement[p], list, len(zones), l.spread)
		}
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
		if d := len(list) - len(at[mv.Partition]); d < -1 || d > 1 {
			require.Fail(t, "not a step of one replica", "%+v", mv)
		}
		at[mv.Partition] = list
		if mv.Add != 0 {
			added++
		}
	}
	require.Len(t, target, len(current))
	for p := range at {
		if !slices.Equal(target[p], at[p]) {
			require.ElementsMatch(t, target[p], at[p], "partition %d", p)
		}
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
		ideal = certified(t, f)
	}
	again, moves, err := Plan(settle(target), nodes, replicas)
	require.NoError(t, err)
	require.Empty(t, moves, "a second plan moves again")
	require.Equal(t, settle(target), again, "a second plan changes the order")
	return settle(target), added, ideal
}

// certified computes the fewest moves at sizes where idealMoves takes too long:
// the editor's own number, which its search proved to be the fewest by finding no
// cycle of negative cost. That the search is right is what the tests at small
// sizes show against idealMoves.
func certified(t reporter, f facts) int {
	e := newEditor(f.layout, f.original, nil)
	require.True(t, e.balance(), "the search was cut short")
	require.GreaterOrEqual(t, e.newcomers(), e.atLeast())
	return e.newcomers()
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

// requireFew asserts the bound on moves. ideal leaves leaders aside. A plan may
// exceed it only where the replicas, moved as ideal says, would lie so that no
// transfers balance the leaders, and then by one exchange: two moves. (Where ideal
// is 0 that is proved to be needed; elsewhere another way to lay the replicas may
// exist. Not seen in 30,000 random histories, and allowed all the same.)
func requireFew(t reporter, current []Replicas, nodes []Node, replicas, added, ideal int) {
	t.Helper()
	if 10*added <= 11*ideal {
		return
	}
	f := survey(current, nodes, replicas)
	e := newEditor(f.layout, f.original, nil)
	e.balance()
	require.LessOrEqual(t, 10*e.newcomers(), 11*ideal, "%d moves, the ideal is %d", added, ideal)
	f.original = e.lists
	require.False(t, leadersFit(f), "%d moves, the ideal is %d", added, ideal)
	require.LessOrEqual(t, added, ideal+2)
}

// leadersFit reports whether transfers alone can bring all leaders into bounds.
func leadersFit(f facts) bool {
	nodes, parts := len(f.load), len(f.original)
	g := newFlow(nodes + parts + 2)
	source, sink := nodes+parts, nodes+parts+1
	for p, list := range f.original {
		g.edge(source, nodes+p, 1, 0)
		for _, n := range list {
			g.edge(nodes+p, int(n), 1, 0)
		}
	}
	for n, high := range f.layout.leadHigh {
		g.edge(n, sink, high, 0)
	}
	sent, _ := g.run(source, sink)
	return sent == parts
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
			target, added, ideal := checkPlan(t, placement, w.nodes, replicas)
			requireFew(t, placement, w.nodes, replicas, added, ideal)
			placement = target
		}
	})
}

// scatter draws a placement that nobody planned: lists of any length, on any
// nodes.
func scatter(t *rapid.T, nodes []Node, partitions, replicas int) []Replicas {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "placement"), 0))
	out := make([]Replicas, partitions)
	for p := range out {
		want := min(len(nodes), max(0, replicas+r.IntN(3)-1))
		for len(out[p]) < want {
			if n := nodes[r.IntN(len(nodes))].ID; out[p].Index(n) < 0 {
				out[p] = append(out[p], Replica{Node: n, Incarnation: 1})
			}
		}
	}
	return out
}

func TestPlanFromAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := 1 << rapid.IntRange(0, 5).Draw(t, "log P")
		replicas := rapid.IntRange(1, 5).Draw(t, "replicas")
		w := &world{zones: rapid.IntRange(0, 4).Draw(t, "zones"), weights: rapid.Bool().Draw(t, "weights")}
		w.join(t, replicas+rapid.IntRange(0, 9).Draw(t, "nodes"))
		current := scatter(t, w.nodes, partitions, replicas)
		w.die(t, rapid.IntRange(0, min(3, len(w.nodes)-replicas)).Draw(t, "deaths"))
		_, added, ideal := checkPlan(t, current, w.nodes, replicas)
		requireFew(t, current, w.nodes, replicas, added, ideal)
	})
}

func TestPlanAtScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{60, 60, 60, 100, 100, 100, 300, 1000}).Draw(t, "nodes")
		w := &world{}
		w.join(t, n)
		if zones := rapid.SampledFrom([]int{0, 3, 7}).Draw(t, "zones"); zones > 0 {
			for i := range w.nodes {
				w.nodes[i].Zone = fmt.Sprint("z", i%zones)
			}
		}
		const replicas = 3
		placement := scatter(t, w.nodes, 1024, replicas)
		for range 2 {
			target, added, ideal := checkPlan(t, placement, w.nodes, replicas)
			requireFew(t, placement, w.nodes, replicas, added, ideal)
			placement = target
			w.die(t, rapid.IntRange(0, 3).Draw(t, "deaths"))
			if rapid.Bool().Draw(t, "joins") {
				w.nodes = append(w.nodes, Node{ID: nodeID(w.next), Weight: 1, Zone: w.nodes[0].Zone})
				w.next++
			}
		}
	})
}
