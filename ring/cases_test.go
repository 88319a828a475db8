package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// TestFewPartitionsManyNodes is CASES 23: partitions 8 and 16, nodes 1 to 40,
// joining one by one. Nothing panics, every bound holds, each node has work while
// there is enough of it, and a join past that is refused in plain words.
func TestFewPartitionsManyNodes(t *testing.T) {
	for _, partitions := range []int{8, 16} {
		nodes := makeNodes(40)
		var placement []Replicas
		for n := 1; n <= len(nodes); n++ {
			replicas := min(n, 3)
			fresh, err := Bootstrap(nodes[:n], partitions, replicas)
			require.NoError(t, err)
			checkPlacement(t, fresh, nodes[:n], replicas)
			if n == 3 {
				placement = fresh
			}
			if n < 3 {
				continue
			}
			before := placement
			var added, ideal int
			placement, added, ideal = checkPlan(t, before, nodes[:n], 3)
			requireFew(t, before, nodes[:n], 3, added, ideal)

			idle := 0
			for _, load := range survey(placement, nodes[:n], 3).load {
				if load == 0 {
					idle++
				}
			}
			require.Equal(t, max(0, n-3*partitions), idle, "idle nodes of %d", n)
			err = CheckJoin(&Map{Partitions: partitions, Replicas: 3}, n)
			if idle == 0 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, sundog.Conflict)
			require.ErrorContains(t, err, "8 partitions of 3 replicas each give work to at most 24 nodes")
			require.ErrorContains(t, err, "--partitions")
		}
	}
	require.NoError(t, CheckJoin(&Map{Partitions: 8}, 24), "before the birth of strong groups the default of 3 counts")
	require.Error(t, CheckJoin(&Map{Partitions: 8}, 25))
}

// TestDeadNodesLoadIsSpread is CASES 24, at both moments: at once, when whoever
// holds a replica takes over, and after the plan.
func TestDeadNodesLoadIsSpread(t *testing.T) {
	for _, n := range []int{4, 5, 8, 12, 40} {
		nodes := makeNodes(n)
		placement, err := Bootstrap(nodes, 512, 3)
		require.NoError(t, err)
		for dead := range nodes {
			rest := append(append([]Node(nil), nodes[:dead]...), nodes[dead+1:]...)
			lost, led := 0, 0
			heirs := make(map[sundog.NodeID]int)
			for _, list := range placement {
				if i := list.Index(nodes[dead].ID); i >= 0 {
					lost++
					if i == 0 {
						led++
						heirs[list[1].Node]++
					}
				}
			}
			fair := float64(led) / float64(n-1)
			for id, count := range heirs {
				require.LessOrEqual(t, float64(count), 2*fair+4, "node %s would lead %d of the %d of node %d of %d", id, count, led, dead, n)
			}

			target, moves, err := Plan(placement, rest, 3)
			require.NoError(t, err)
			checkPlacement(t, target, rest, 3)
			gained := make(map[sundog.NodeID]int)
			for _, mv := range moves {
				gained[mv.Add]++
			}
			for id, count := range gained {
				require.LessOrEqual(t, count, 2*(lost+n-2)/(n-1), "node %s takes %d of the %d of node %d of %d", id, count, lost, dead, n)
			}
			require.GreaterOrEqual(t, len(gained), min(lost, n-1)*3/4, "who takes the %d of node %d of %d", lost, dead, n)
			require.InDelta(t, lost, len(moves), 0.1*float64(lost), "moves")
		}
	}
}

// TestBoundsInWords checks the bounds of equal nodes without zones against the
// design's own formula, not against the layout that the planner works with.
func TestBoundsInWords(t *testing.T) {
	for _, n := range []int{3, 4, 5, 7, 9, 11, 19, 33} {
		nodes := makeNodes(n + 1)
		placement, err := Bootstrap(nodes[:n], 128, 3)
		require.NoError(t, err)
		for _, there := range [][]Node{nodes[:n], nodes, nodes[1:]} {
			target, _, err := Plan(placement, there, 3)
			require.NoError(t, err)
			f := survey(target, there, 3)
			mean, leadMean := 384/float64(len(there)), 128/float64(len(there))
			for i := range there {
				require.LessOrEqual(t, float64(f.load[i]), max(float64((384+len(there)-1)/len(there)), 1.1*mean))
				require.LessOrEqual(t, float64(f.leads[i]), max(float64((128+len(there)-1)/len(there)), 1.1*leadMean))
				require.GreaterOrEqual(t, float64(f.load[i]), min(float64(384/len(there)), 0.9*mean))
			}
		}
	}
}

func TestWeights(t *testing.T) {
	nodes := makeNodes(8)
	nodes[2].Weight, nodes[5].Weight = 2, 4
	placement, err := Bootstrap(nodes, 256, 3)
	require.NoError(t, err)
	f := survey(placement, nodes, 3)
	sorted, err := checkNodes(nodes, 3)
	require.NoError(t, err)
	for i, n := range sorted {
		// 12 weights share 768 replicas (64 each) and 256 leaders; the heaviest
		// node has room for exactly its 256, one of each partition.
		require.InEpsilon(t, 64*n.Weight, f.load[i], 0.1)
		require.LessOrEqual(t, float64(f.leads[i]), max(float64((256*n.Weight+11)/12), 1.1*256*float64(n.Weight)/12))
	}
}

// TestZonesComeFirst has one node alone in its zone: it must hold a replica of
// every partition, whatever its share would be.
func TestZonesComeFirst(t *testing.T) {
	nodes := makeNodes(6)
	for i := range nodes {
		nodes[i].Zone = "many"
	}
	nodes[3].Zone = "alone"
	placement, err := Bootstrap(nodes, 64, 2)
	require.NoError(t, err)
	checkPlacement(t, placement, nodes, 2)
	for _, list := range placement {
		require.GreaterOrEqual(t, list.Index(nodes[3].ID), 0)
	}
}

// TestScheduleKeepsRoom executes plans step by step: lost replicas are replaced
// first, and no node is ever above the larger of its bound and its start.
func TestScheduleKeepsRoom(t *testing.T) {
	nodes := makeNodes(14)
	placement, err := Bootstrap(nodes[:10], 128, 3)
	require.NoError(t, err)
	there := append(append([]Node(nil), nodes[:4]...), nodes[5:]...) // one died, four joined
	_, moves, err := Plan(placement, there, 3)
	require.NoError(t, err)
	require.NotEmpty(t, moves)
	f := survey(placement, there, 3)
	sorted, err := checkNodes(there, 3)
	require.NoError(t, err)
	index := make(map[sundog.NodeID]int)
	for i, n := range sorted {
		index[n.ID] = i
	}
	limit := make([]int, len(sorted))
	for i := range limit {
		limit[i] = max(f.load[i], f.layout.high[i])
	}
	balancing := false
	for _, mv := range moves {
		if mv.Remove != nodes[4].ID {
			balancing = true
			f.load[index[mv.Remove]]--
		} else {
			require.False(t, balancing, "a lost replica waits for one that only balances")
		}
		f.load[index[mv.Add]]++
		require.LessOrEqual(t, f.load[index[mv.Add]], limit[index[mv.Add]])
	}
}

func TestMoveApply(t *testing.T) {
	list := Replicas{{1, 1}, {2, 7}, {3, 9}}
	out, err := Move{Add: 4, Remove: 2}.Apply(list, 12)
	require.NoError(t, err)
	require.Equal(t, Replicas{{1, 1}, {4, 12}, {3, 9}}, out)
	out, err = Move{Add: 4}.Apply(list, 12)
	require.NoError(t, err)
	require.Equal(t, Replicas{{1, 1}, {2, 7}, {3, 9}, {4, 12}}, out)
	out, err = Move{Remove: 1}.Apply(list, 0)
	require.NoError(t, err)
	require.Equal(t, Replicas{{2, 7}, {3, 9}}, out)
	require.Equal(t, Replicas{{1, 1}, {2, 7}, {3, 9}}, list)
	_, err = Move{Add: 3, Remove: 1}.Apply(list, 12)
	require.ErrorIs(t, err, sundog.Conflict)
	_, err = Move{Remove: 5}.Apply(list, 0)
	require.ErrorIs(t, err, sundog.Conflict)
}
