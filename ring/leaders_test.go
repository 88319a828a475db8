package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// place writes lists of node numbers as a placement.
func place(nodes []Node, lists ...[]int) (out []Replicas) {
	for _, list := range lists {
		var r Replicas
		for _, n := range list {
			r = append(r, Replica{Node: nodes[n].ID, Incarnation: 1})
		}
		out = append(out, r)
	}
	return out
}

func repeat(n int, list ...int) (out [][]int) {
	for range n {
		out = append(out, list)
	}
	return out
}

// TestLeadersThatTransfersCannotBalance has two islands of three nodes. The
// replicas are in bounds (62 a node and 52 a node, the mean is 57), but a node
// may lead 20 and the first island has 62 partitions to lead: two must get out.
func TestLeadersThatTransfersCannotBalance(t *testing.T) {
	nodes := makeNodes(6)
	current := place(nodes, append(repeat(62, 0, 1, 2), repeat(52, 3, 4, 5)...)...)
	f := survey(current, nodes, 3)
	ideal, ok := idealMoves(f.layout, f.original)
	require.True(t, ok)
	require.Zero(t, ideal, "the replicas could stay")
	require.False(t, leadersFit(f))
	_, added, _ := checkPlan(t, current, nodes, 3)
	require.Equal(t, 2, added)
}

// TestLeadersAcrossZones has one move that helps only together with a transfer:
// nodes 0, 2, 3 have four partitions and may lead one each; one of them must take
// a node that hands what it leads to node 1.
func TestLeadersAcrossZones(t *testing.T) {
	nodes := makeNodes(8)
	for i := range nodes {
		nodes[i].Zone = "b"
	}
	nodes[0].Zone, nodes[1].Zone = "a", "a"
	current := place(nodes, []int{0, 2}, []int{0, 2}, []int{0, 3}, []int{0, 3}, []int{4, 1}, []int{5, 1}, []int{6, 1}, []int{7, 1})
	require.False(t, leadersFit(survey(current, nodes, 2)))
	_, added, ideal := checkPlan(t, current, nodes, 2)
	require.Zero(t, ideal)
	require.Equal(t, 1, added)
}

// TestLeadersByExchange leaves no room for a single move: every node must hold
// just what it holds, so two partitions exchange a replica.
func TestLeadersByExchange(t *testing.T) {
	nodes := makeNodes(4)
	// Two islands of two nodes, 5 replicas a node; those of the first may lead 2.
	current := place(nodes, append(repeat(5, 0, 1), repeat(5, 2, 3)...)...)
	f := survey(current, nodes, 2)
	e := newEditor(f.layout, f.original, nil)
	require.True(t, e.balance())
	for _, n := range e.lists[0] {
		e.leadHigh[n] = 2
	}
	for n := range e.low {
		e.low[n], e.high[n] = 5, 5
	}
	of := chooseLeaders(e)
	led := make([]int, len(nodes))
	for p, n := range of {
		require.Contains(t, e.lists[p], n)
		led[n]++
	}
	for n := range led {
		require.LessOrEqual(t, led[n], e.leadHigh[n])
		require.Equal(t, 5, e.load(int32(n)))
	}
	require.Equal(t, 2, e.newcomers())
}

// TestLeadersStay checks that nothing that is in bounds is transferred.
func TestLeadersStay(t *testing.T) {
	nodes := makeNodes(5)
	placement, err := Bootstrap(nodes, 64, 3)
	require.NoError(t, err)
	target, moves, err := Plan(placement, nodes, 3)
	require.NoError(t, err)
	require.Empty(t, moves)
	require.Equal(t, placement, target)

	// A leader too many is handed over, and only that one.
	var over int
	for p, list := range placement {
		if list[0].Node != nodes[0].ID && list.Index(nodes[0].ID) > 0 && over < 9 {
			i := list.Index(nodes[0].ID)
			placement[p][0], placement[p][i] = list[i], list[0]
			over++
		}
	}
	f := survey(placement, nodes, 3)
	excess := 0
	for n := range f.leads {
		excess += max(0, f.leads[n]-f.layout.leadHigh[n])
	}
	require.Positive(t, excess)
	target, moves, err = Plan(placement, nodes, 3)
	require.NoError(t, err)
	require.Empty(t, moves, "leaders are moved by transfer")
	checkPlacement(t, target, nodes, 3)
	changed := 0
	for p := range target {
		if target[p][0] != placement[p][0] {
			changed++
		}
	}
	require.GreaterOrEqual(t, changed, excess)
	require.LessOrEqual(t, changed, 2*excess)
}
