package ring

import (
	"iter"

	"github.com/sundog-kv/sundog"
)

// View is a map together with the leaders that its holder has heard of. It is
// immutable: every change makes a new one, so a reader holds one consistent
// picture for as long as it likes. What it says of leaders is a hint; the node
// that is asked decides.
type View struct {
	m *Map

	// Leaders by partition in chunks, nil where none of the chunk is known. A
	// change copies the outer slice and one chunk: some 3 KiB at the largest P.
	chunks []*chunk
}

const chunkSize = 128

type chunk [chunkSize]Leader

// Leader is who leads a partition, as of a Raft term. The zero Leader is
// "nothing known".
type Leader struct {
	Node sundog.NodeID // 0: the last leader of the term is known to lead no more
	Term uint64
}

// NewView returns a view of the map in which no leader is known.
func NewView(m *Map) *View {
	return &View{m: m, chunks: make([]*chunk, (m.Partitions+chunkSize-1)/chunkSize)}
}

// Map returns the view's map.
func (v *View) Map() *Map { return v.m }

// Epoch returns the epoch of the view's map.
func (v *View) Epoch() sundog.Epoch { return v.m.Epoch }

func (v *View) at(p sundog.Partition) Leader {
	if int(p) >= v.m.Partitions {
		return Leader{}
	}
	c := v.chunks[p/chunkSize]
	if c == nil {
		return Leader{}
	}
	return c[p%chunkSize]
}

// Leader returns the known leader of the partition and whether there is one.
func (v *View) Leader(p sundog.Partition) (sundog.NodeID, bool) {
	n := v.at(p).Node
	return n, n != 0
}

// Owner returns whom to ask for the partition: its known leader, else its
// preferred owner by placement; false when it is not placed.
func (v *View) Owner(p sundog.Partition) (sundog.NodeID, bool) {
	if n := v.at(p).Node; n != 0 {
		return n, true
	}
	if list := v.m.Owners(p); len(list) > 0 {
		return list[0].Node, true
	}
	return 0, false
}

// Term returns the highest term heard of for the partition; 0 for none.
func (v *View) Term(p sundog.Partition) uint64 { return v.at(p).Term }

// Leaders yields every known leader in partition order.
func (v *View) Leaders() iter.Seq2[sundog.Partition, Leader] {
	return func(yield func(sundog.Partition, Leader) bool) {
		for i, c := range v.chunks {
			for j := 0; c != nil && j < chunkSize; j++ {
				if c[j].Node != 0 && !yield(sundog.Partition(i*chunkSize+j), c[j]) {
					return
				}
			}
		}
	}
}

// WithLeader returns a view in which node leads the partition since term. News
// of an older term changes nothing, nor does news from outside the map (a node
// or partition it does not have): the same view is returned. Term 0 stands for
// "not told" and never displaces a leader known by its term.
func (v *View) WithLeader(p sundog.Partition, node sundog.NodeID, term uint64) *View {
	old := v.at(p)
	if _, ok := v.m.Node(node); !ok || int(p) >= v.m.Partitions || term < old.Term || old == (Leader{node, term}) {
		return v
	}
	return v.with(p, Leader{node, term})
}

// WithoutLeader returns a view that no longer holds node to lead the partition;
// the same view when it did not. The term is kept, so that older news stays old.
func (v *View) WithoutLeader(p sundog.Partition, node sundog.NodeID) *View {
	old := v.at(p)
	if node == 0 || old.Node != node {
		return v
	}
	return v.with(p, Leader{0, old.Term})
}

func (v *View) with(p sundog.Partition, l Leader) *View {
	w := &View{m: v.m, chunks: append([]*chunk(nil), v.chunks...)}
	c := new(chunk)
	if old := v.chunks[p/chunkSize]; old != nil {
		*c = *old
	}
	c[p%chunkSize] = l
	w.chunks[p/chunkSize] = c
	return w
}

// WithMap returns a view of the map m that keeps the leaders known so far whose
// nodes m still has. A map of a lower epoch than the view's changes nothing; one
// of another cluster or partition count begins a view from nothing.
func (v *View) WithMap(m *Map) *View {
	if m.Cluster != v.m.Cluster || m.Partitions != v.m.Partitions {
		return NewView(m)
	}
	if m.Epoch < v.m.Epoch {
		return v
	}
	w := &View{m: m, chunks: append([]*chunk(nil), v.chunks...)}
	for p, l := range v.Leaders() {
		if _, ok := m.Node(l.Node); !ok {
			w = w.with(p, Leader{0, l.Term})
		}
	}
	return w
}
