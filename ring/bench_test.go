package ring

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPlan plans one join and one death at once, three replicas.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ nodes, partitions int }{{10, 64}, {100, 512}, {1000, 4096}} {
		b.Run(fmt.Sprintf("nodes=%d/partitions=%d", size.nodes, size.partitions), func(b *testing.B) {
			nodes := makeNodes(size.nodes + 1)
			placement, err := Bootstrap(nodes[:size.nodes], size.partitions, 3)
			require.NoError(b, err)
			b.ReportAllocs()
			moved := 0
			for b.Loop() {
				_, moves, err := Plan(placement, nodes[1:], 3)
				if err != nil {
					b.Fatal(err)
				}
				moved = len(moves)
			}
			b.ReportMetric(float64(moved), "moves")
		})
	}
}

// BenchmarkUnmarshalMap reads the map of 100 nodes and 1,024 partitions.
func BenchmarkUnmarshalMap(b *testing.B) {
	nodes := makeNodes(100)
	nodes, err := checkNodes(nodes, 3)
	require.NoError(b, err)
	m := youngMap()
	m.Partitions, m.Replicas, m.Epoch, m.Birth, m.Nodes = 1024, 3, 1, 1, nodes
	m.Placement, err = Bootstrap(nodes, m.Partitions, m.Replicas)
	require.NoError(b, err)
	enc, err := m.Marshal()
	require.NoError(b, err)
	b.SetBytes(int64(len(enc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := UnmarshalMap(enc); err != nil {
			b.Fatal(err)
		}
	}
}
