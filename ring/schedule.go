package ring

import (
	"cmp"
	"slices"

	"github.com/sundog-kv/sundog"
)

// steps turns the change of one partition into one-replica moves: replicas on
// nodes that are gone leave first, and a newcomer replaces one of its own zone
// where there is one, so that zones stay covered on the way. What is added
// without a counterpart comes first, what is removed without one last.
func (e *editor) steps(p int, current Replicas, nodes []Node, index map[sundog.NodeID]int32) []Move {
	part := sundog.Partition(p)
	var gone, leaving []sundog.NodeID // who is no longer there, and who is but gives up
	for _, r := range current {
		if n, ok := index[r.Node]; !ok {
			gone = append(gone, r.Node)
		} else if !slices.Contains(e.lists[p], n) {
			leaving = append(leaving, r.Node)
		}
	}
	var add []int32
	for _, n := range e.lists[p] {
		if !e.isOriginal(p, n) {
			add = append(add, n)
		}
	}
	slices.Sort(add) // by id: the editor's own order tells how it got there, which is no matter
	var moves []Move
	for extra := len(add) - len(gone) - len(leaving); extra > 0; extra-- {
		moves = append(moves, Move{Partition: part, Add: nodes[add[0]].ID})
		add = add[1:]
	}
	for len(add) > 0 {
		mv := Move{Partition: part, Add: nodes[add[0]].ID}
		if len(gone) > 0 {
			mv.Remove, gone = gone[0], gone[1:]
		} else {
			i := max(0, slices.IndexFunc(leaving, func(id sundog.NodeID) bool { return e.zone[index[id]] == e.zone[add[0]] }))
			mv.Remove = leaving[i]
			leaving = slices.Delete(leaving, i, i+1)
		}
		moves = append(moves, mv)
		add = add[1:]
	}
	for _, id := range append(gone, leaving...) {
		moves = append(moves, Move{Partition: part, Remove: id})
	}
	return moves
}

// schedule orders the moves of all partitions. Those that replace a replica that
// is gone come first, the partitions that lost most before the others; then
// rounds over the partitions. A move onto a node at the top of its band (or of
// the load it had, if that was more) waits until another has left it.
func schedule(steps [][]Move, e *editor, index map[sundog.NodeID]int32) []Move {
	type ranked struct {
		Move
		lost, round int
	}
	var queue []ranked
	load := make([]int, len(e.zone))
	for _, list := range e.original {
		for _, n := range list {
			load[n]++
		}
	}
	limit := make([]int, len(e.zone))
	for n := range limit {
		limit[n] = max(e.high[n], load[n])
	}
	for p := range steps {
		lost := 0
		for _, mv := range steps[p] {
			if _, ok := index[mv.Remove]; mv.Remove != 0 && !ok {
				lost++
			}
		}
		for round, mv := range steps[p] {
			queue = append(queue, ranked{mv, max(0, lost-round), round})
		}
	}
	slices.SortStableFunc(queue, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.lost, a.lost), cmp.Compare(a.round, b.round))
	})

	out := make([]Move, 0, len(queue))
	waiting := make([][]Move, len(e.zone)) // for room on a node
	var run func(mv Move)
	run = func(mv Move) {
		out = append(out, mv)
		if n, ok := index[mv.Add]; ok {
			load[n]++
		}
		n, ok := index[mv.Remove]
		if !ok {
			return
		}
		load[n]--
		if len(waiting[n]) > 0 && load[n] < limit[n] {
			next := waiting[n][0]
			waiting[n] = waiting[n][1:]
			run(next)
		}
	}
	for _, r := range queue {
		if n, ok := index[r.Add]; ok && load[n] >= limit[n] {
			waiting[n] = append(waiting[n], r.Move)
			continue
		}
		run(r.Move)
	}
	for n := range waiting { // circles
		for len(waiting[n]) > 0 {
			next := waiting[n][0]
			waiting[n] = waiting[n][1:]
			run(next)
		}
	}
	return out
}
