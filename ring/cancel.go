package ring

import "slices"

// cancelBudget bounds the edges that cancel looks at in one plan: about half a
// second's worth, ten times what 1,000 nodes and 4,096 partitions were seen to
// need from a random placement.
const cancelBudget = 1 << 28

// cancel removes newcomers that are not needed. A placement is a flow from
// partitions through their zones to nodes, with a cost of 1 for each newcomer; it
// has the fewest newcomers exactly when its residual graph has no cycle of
// negative cost (Klein, 1967). So cycles are sought and turned round until there
// is none, or the budget is used up, or a simple lower bound shows that none can
// be. It reports whether the number of newcomers is now known to be the fewest.
func (e *editor) cancel() (fewest bool) {
	c := &canceller{editor: e, budget: cancelBudget}
	for e.newcomers() > e.atLeast() && c.turn() {
	}
	return c.budget > 0
}

func (e *editor) newcomers() (n int) {
	for _, g := range e.gained {
		n += g
	}
	return n
}

// atLeast is a lower bound on newcomers that leaves zones aside: what is missing
// or above a band must come to another node, and what is below one must come
// there.
func (e *editor) atLeast() int {
	load := make([]int, len(e.zone))
	for _, list := range e.original {
		for _, n := range list {
			load[n]++
		}
	}
	give, get := e.partitions*e.replicas, 0
	for n := range load {
		give -= min(load[n], e.high[n])
		get += max(0, e.low[n]-load[n])
	}
	return max(give, get)
}

// canceller searches the residual graph by Bellman and Ford's method with a
// queue, all distances zero at first. Its vertices are the nodes, a sink that
// takes what a node's band leaves open, the partitions, and each partition's
// zones.
type canceller struct {
	*editor
	budget int

	members [][]int32 // nodes by zone
	dist    []int32
	via     []int32 // the vertex before
	queued  []bool
	queue   []int32
	relaxed int
}

func (c *canceller) sink() int32       { return int32(len(c.zone)) }
func (c *canceller) part(p int) int32  { return c.sink() + 1 + int32(p) }
func (c *canceller) vertices() int32   { return c.part(len(c.lists) * (1 + len(c.members))) }
func (c *canceller) at(p, z int) int32 { return c.part(len(c.lists) + p*len(c.members) + z) }

// turn finds one cycle of negative cost and turns it round. It reports false
// when there is none or the budget is used up.
func (c *canceller) turn() bool {
	if c.members == nil {
		for n, z := range c.zone {
			for len(c.members) <= z {
				c.members = append(c.members, nil)
			}
			c.members[z] = append(c.members[z], int32(n))
		}
	}
	n := c.vertices()
	c.dist, c.via, c.queued = make([]int32, n), make([]int32, n), make([]bool, n)
	c.queue, c.relaxed = c.queue[:0], 0
	for v := range n {
		c.via[v] = -1
		c.push(v)
	}
	for len(c.queue) > 0 {
		if c.budget <= 0 {
			return false
		}
		v := c.queue[0]
		c.queue = c.queue[1:]
		c.queued[v] = false
		c.expand(v)
		if c.relaxed >= int(n) {
			c.relaxed = 0
			if cycle := c.cycle(); cycle != nil {
				c.apply(cycle)
				return true
			}
		}
	}
	if cycle := c.cycle(); cycle != nil {
		c.apply(cycle)
		return true
	}
	return false
}

func (c *canceller) push(v int32) {
	if !c.queued[v] {
		c.queued[v] = true
		c.queue = append(c.queue, v)
	}
}

func (c *canceller) relax(a, b int32, cost int32) {
	c.budget--
	if c.dist[a]+cost < c.dist[b] {
		c.dist[b], c.via[b] = c.dist[a]+cost, a
		c.relaxed++
		c.push(b)
	}
}

// expand relaxes the residual edges out of a vertex.
func (c *canceller) expand(v int32) {
	zones := int32(len(c.members))
	switch first := c.part(len(c.lists)); {
	case v < c.sink(): // a node gives one of its replicas back, or has room for one
		for _, p := range c.held[v] {
			c.relax(v, c.at(int(p), c.zone[v]), -c.price(int(p), v))
		}
		if c.load(v) < c.high[v] {
			c.relax(v, c.sink(), 0)
		}
	case v == c.sink(): // a node can do with one less
		for n := range c.zone {
			if c.load(int32(n)) > c.low[n] {
				c.relax(v, int32(n), 0)
			}
		}
	case v < first: // a partition takes one more in a zone
		p := int(v - c.part(0))
		for z := range c.members {
			if c.replicas > len(c.members) || c.inZone(p, z) == 0 {
				c.relax(v, c.at(p, z), 0)
			}
		}
	default: // a partition's zone passes it on to a node of its own, or to another zone
		p, z := int((v-first)/zones), int((v-first)%zones)
		for _, n := range c.members[z] {
			if c.dist[v] < c.dist[n] && !slices.Contains(c.lists[p], n) {
				c.relax(v, n, c.price(p, n))
			}
		}
		c.budget -= len(c.members[z])
		if here := c.inZone(p, z); here > 1 || here == 1 && c.replicas <= len(c.members) {
			c.relax(v, c.part(p), 0)
		}
	}
}

// price is what a replica of p on n costs.
func (c *canceller) price(p int, n int32) int32 {
	if c.isOriginal(p, n) {
		return 0
	}
	return 1
}

func (c *canceller) inZone(p, z int) (count int) {
	for _, n := range c.lists[p] {
		if n != vacant && c.zone[n] == z {
			count++
		}
	}
	return count
}

// cycle returns the vertices of a cycle of the way that distances came, in the
// direction of its edges; nil when there is none. Such a cycle has negative cost.
func (c *canceller) cycle() []int32 {
	mark := make([]int32, len(c.via))
	for start := range c.via {
		v := int32(start)
		for v >= 0 && mark[v] == 0 {
			mark[v] = int32(start) + 1
			v = c.via[v]
		}
		if v < 0 || mark[v] != int32(start)+1 {
			continue
		}
		cycle := []int32{v}
		for u := c.via[v]; u != v; u = c.via[u] {
			cycle = append(cycle, u)
		}
		slices.Reverse(cycle)
		return cycle
	}
	return nil
}

// apply turns a cycle round: what leaves its place first, then what comes.
func (c *canceller) apply(cycle []int32) {
	first := c.part(len(c.lists))
	for _, coming := range []bool{false, true} {
		for i, a := range cycle {
			b := cycle[(i+1)%len(cycle)]
			switch {
			case !coming && a < c.sink() && b >= first:
				c.drop(int(b-first)/len(c.members), a)
			case coming && a >= first && b < c.sink():
				c.replace(int(a-first)/len(c.members), vacant, b)
			}
		}
	}
}
