package ring

import "math"

// idealMoves computes the fewest newcomers of any placement that obeys the
// layout (loads in their bands, zones covered), leaders left aside, which makes
// it a lower bound for those that obey the leaders' band as well. It is a
// minimum-cost flow with integer capacities, so exact:
//
//	source → partition (replicas) → (partition, zone) → (partition, node) (1) → node → sink
//
// where an edge onto a node that has the replica already costs 0 and another 1.
// A partition that must cover all Z < R zones sends at least one unit to each
// (a cost far below zero on the first unit); one that needs R <= Z distinct
// zones sends at most one. A node's low bound is likewise a reward on its first
// low units. ok is false when no placement obeys the layout.
func idealMoves(l *layout, original [][]int32) (moves int, ok bool) {
	const reward = 1 << 20
	zones := 0
	for _, z := range l.zone {
		zones = max(zones, z+1)
	}
	nodes, parts := len(l.zone), len(original)
	node := func(n int) int { return n }
	part := func(p int) int { return nodes + p }
	partZone := func(p, z int) int { return nodes + parts + p*zones + z }
	source := nodes + parts + parts*zones
	sink := source + 1
	g := newFlow(sink + 1)
	rewards := 0
	for p := range parts {
		g.edge(source, part(p), l.replicas, 0)
		for z := range zones {
			if l.replicas <= zones {
				g.edge(part(p), partZone(p, z), 1, 0)
			} else {
				g.edge(part(p), partZone(p, z), 1, -reward)
				g.edge(part(p), partZone(p, z), l.replicas-1, 0)
				rewards++
			}
		}
		for n, z := range l.zone {
			cost := 1
			for _, o := range original[p] {
				if int(o) == n {
					cost = 0
				}
			}
			g.edge(partZone(p, z), node(n), 1, cost)
		}
	}
	for n := range nodes {
		g.edge(node(n), sink, l.low[n], -reward)
		g.edge(node(n), sink, l.high[n]-l.low[n], 0)
		rewards += l.low[n]
	}
	sent, cost := g.run(source, sink)
	cost += rewards * reward
	return cost, sent == parts*l.replicas && cost < reward
}

// flow is successive shortest paths by Bellman and Ford's queue; made for small
// graphs.
type flow struct {
	to, room, cost []int
	out            [][]int
}

func newFlow(n int) *flow { return &flow{out: make([][]int, n)} }

func (g *flow) edge(a, b, room, cost int) {
	g.out[a] = append(g.out[a], len(g.to))
	g.out[b] = append(g.out[b], len(g.to)+1)
	g.to = append(g.to, b, a)
	g.room = append(g.room, room, 0)
	g.cost = append(g.cost, cost, -cost)
}

func (g *flow) run(source, sink int) (sent, total int) {
	for {
		dist := make([]int, len(g.out))
		via := make([]int, len(g.out))
		in := make([]bool, len(g.out))
		for i := range dist {
			dist[i] = math.MaxInt
		}
		dist[source] = 0
		queue := []int{source}
		for len(queue) > 0 {
			a := queue[0]
			queue = queue[1:]
			in[a] = false
			for _, e := range g.out[a] {
				b := g.to[e]
				if g.room[e] > 0 && dist[a]+g.cost[e] < dist[b] {
					dist[b], via[b] = dist[a]+g.cost[e], e
					if !in[b] {
						in[b] = true
						queue = append(queue, b)
					}
				}
			}
		}
		if dist[sink] == math.MaxInt {
			return sent, total
		}
		push := math.MaxInt
		for b := sink; b != source; b = g.to[via[b]^1] {
			push = min(push, g.room[via[b]])
		}
		for b := sink; b != source; b = g.to[via[b]^1] {
			g.room[via[b]] -= push
			g.room[via[b]^1] += push
		}
		sent += push
		total += push * dist[sink]
	}
}
