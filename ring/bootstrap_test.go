package ring

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rawOrder is what the library alone prefers, as node ids.
func rawOrder(t *testing.T, nodes []Node, partitions, replicas int) (ids [][]sundog.NodeID, index [][]int32) {
	nodes, err := checkNodes(nodes, replicas)
	require.NoError(t, err)
	lib := newLibrary(nodes, partitions)
	for p := range partitions {
		order, err := lib.order(p)
		require.NoError(t, err)
		require.Len(t, order, len(nodes))
		var list []sundog.NodeID
		for _, n := range order[:replicas] {
			list = append(list, nodes[n].ID)
		}
		ids, index = append(ids, list), append(index, order[:replicas])
	}
	return ids, index
}

var shapes = []struct {
	name                 string
	nodes, zones, weight int // weight: that of the first node
	partitions, replicas int
}{
	{"one node", 1, 0, 1, 8, 1},
	{"three nodes", 3, 0, 1, 32, 3},
	{"five nodes", 5, 0, 1, 32, 3},
	{"eight nodes in three zones", 8, 3, 1, 32, 3},
	{"six nodes in two zones", 6, 2, 1, 16, 3},
	{"six nodes, one of weight 3", 6, 0, 3, 32, 3},
	{"twenty nodes", 20, 0, 1, 64, 3},
	{"more nodes than replicas to place", 40, 0, 1, 8, 3},
}

func shapeNodes(n, zones, weight int) []Node {
	nodes := makeNodes(n)
	for i := range nodes {
		nodes[i].ID = sundog.NodeID(0x1000 + i)
		if zones > 0 {
			nodes[i].Zone = fmt.Sprint("z", i%zones)
		}
	}
	nodes[0].Weight = weight
	return nodes
}

// TestBootstrapGolden pins the placement of each shape, beside what the library
// alone would give. A difference means that new clusters are laid out otherwise
// by this release; run with -update if that is meant.
func TestBootstrapGolden(t *testing.T) {
	var out strings.Builder
	for _, s := range shapes {
		nodes := shapeNodes(s.nodes, s.zones, s.weight)
		placement, err := Bootstrap(nodes, s.partitions, s.replicas)
		require.NoError(t, err)
		checkPlacement(t, placement, nodes, s.replicas)
		raw, _ := rawOrder(t, nodes, s.partitions, s.replicas)
		fmt.Fprintf(&out, "# %s: partitions %d, replicas %d; partition, placement, the library's order where it differs\n", s.name, s.partitions, s.replicas)
		for p, list := range placement {
			var ids []sundog.NodeID
			for _, r := range list {
				require.Equal(t, uint32(1), r.Incarnation)
				ids = append(ids, r.Node)
			}
			line := fmt.Sprintf("%d %v", p, ids)
			if want := fmt.Sprintf("%d %v", p, raw[p]); line != want {
				line += fmt.Sprintf(" library %v", raw[p])
			}
			fmt.Fprintln(&out, line)
		}
	}
	const file = "testdata/bootstrap.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), out.String())
}

// TestBootstrapIsTheLibrarysOrder says what equality with the library means: as
// few replicas differ as the bounds allow, none where the bounds hold anyhow, and
// the owner is that of the library as anyone would set it up.
func TestBootstrapIsTheLibrarysOrder(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			nodes := shapeNodes(s.nodes, s.zones, s.weight)
			placement, err := Bootstrap(nodes, s.partitions, s.replicas)
			require.NoError(t, err)
			raw, index := rawOrder(t, nodes, s.partitions, s.replicas)
			ideal, ok := idealMoves(newLayout(nodes, s.partitions, s.replicas), index)
			require.True(t, ok)
			differ, owners := 0, 0
			for p, list := range placement {
				for _, id := range raw[p] {
					if list.Index(id) < 0 {
						differ++
					}
				}
				if list[0].Node == raw[p][0] {
					owners++
				}
			}
			require.LessOrEqual(t, 10*differ, 11*ideal)
			t.Logf("%d of %d replicas and %d of %d owners are the library's; %d must differ",
				s.partitions*s.replicas-differ, s.partitions*s.replicas, owners, s.partitions, ideal)
			plain := consistent.New(members(nodes), consistent.Config{
				Hasher: plainHash{}, PartitionCount: s.partitions, ReplicationFactor: virtualNodes, Load: ownerLoad,
			})
			for p := range raw {
				require.Equal(t, plain.GetPartitionOwner(p).String(), raw[p][0].String())
			}
		})
	}
}

type plainHash struct{}

func (plainHash) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

func members(nodes []Node) (out []consistent.Member) {
	for _, n := range nodes {
		out = append(out, member(n.ID.String()))
	}
	return out
}

func TestBootstrapIgnoresTheOrderOfNodes(t *testing.T) {
	nodes := shapeNodes(8, 3, 2)
	a, err := Bootstrap(nodes, 64, 3)
	require.NoError(t, err)
	for i := range nodes[:4] {
		nodes[i], nodes[7-i] = nodes[7-i], nodes[i]
	}
	b, err := Bootstrap(nodes, 64, 3)
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestBadArguments(t *testing.T) {
	nodes := makeNodes(3)
	_, err := Bootstrap(nodes, 33, 3)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = Bootstrap(nodes, 32, 4)
	require.ErrorIs(t, err, sundog.Unavailable)
	_, err = Bootstrap(nodes, 32, 0)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = Bootstrap(nodes, 32, sundog.MaxReplicas+1)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = Bootstrap(append(nodes, nodes[0]), 32, 3)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = Bootstrap(append(nodes, Node{ID: 5}), 32, 3)
	require.ErrorIs(t, err, sundog.Invalid, "no weight")

	placement, err := Bootstrap(nodes, 32, 3)
	require.NoError(t, err)
	target, moves, err := Plan(placement, nodes[:2], 3)
	require.ErrorIs(t, err, sundog.Unavailable, "two nodes cannot hold three replicas")
	require.Nil(t, target)
	require.Nil(t, moves)
	placement[5][1] = placement[5][0]
	_, _, err = Plan(placement, nodes, 3)
	require.ErrorIs(t, err, sundog.Invalid)
	target, moves, err = Plan(nil, nodes, 3)
	require.NoError(t, err)
	require.Empty(t, target)
	require.Empty(t, moves)
}
