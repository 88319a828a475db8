package ring

import "slices"

// hop moves one replica of a partition from a node to another.
type hop struct {
	p        int
	from, to int32
}

// route searches the shortest chain of moves, each legal by itself and no two of
// one partition, nor of the partition avoid, that begins at one of starts and
// ends at goal, or, when goal is vacant, at any node below its band's top. It
// is breadth first over nodes, so its cost is bounded by the number of pairs of
// a replica and a node. Nil when there is none.
func (e *editor) route(starts []int32, goal int32, avoid int) []hop {
	via := make([]hop, len(e.zone)) // how each node was reached
	seen := make([]bool, len(e.zone))
	for _, n := range starts {
		seen[n] = true
		via[n] = hop{p: -1}
	}
	trace := func(n int32) []hop {
		var route []hop
		for via[n].p >= 0 {
			route = append(route, via[n])
			n = via[n].from
		}
		slices.Reverse(route)
		return route
	}
	queue := slices.Clone(starts)
	for len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		used := trace(a)
		for _, q := range e.held[a] {
			p := int(q)
			if p == avoid || slices.ContainsFunc(used, func(h hop) bool { return h.p == p }) {
				continue
			}
			for n := range e.zone {
				b := int32(n)
				if seen[b] || !e.legal(p, a, b) {
					continue
				}
				seen[b], via[b] = true, hop{p, a, b}
				if b == goal || goal == vacant && e.load(b) < e.high[b] {
					return trace(b)
				}
				queue = append(queue, b)
			}
		}
	}
	return nil
}

// follow makes the moves of a route, the last first, so that no node is above
// its load at either end of it.
func (e *editor) follow(route []hop) {
	for _, h := range slices.Backward(route) {
		e.replace(h.p, h.from, h.to)
	}
}
