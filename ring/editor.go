package ring

import "slices"

// vacant stands in a partition's list where a replica is still to be found.
const vacant int32 = -1

// editor changes a placement, by node index, until it obeys a layout, one
// replica at a time. A replica at its place in the placement it began with is
// original, any other is a newcomer; the number of newcomers is the cost.
type editor struct {
	*layout
	lists    [][]int32 // by partition, layout.replicas long
	original [][]int32 // by partition: what was there, nodes that are gone left out
	held     [][]int32 // by node: the partitions of its replicas
	gained   []int     // by node: newcomers
	scale    []int64   // by node: fair share, scaled to compare loads with

	// prefer returns the partition's own order of nodes, where it has one
	// (bootstrap), else nil.
	prefer func(p int) []int32
}

// newEditor begins with the original lists. Replicas beyond layout.replicas,
// and those that leave too few places for the zones still to be covered, are
// vacated at once: those must go whatever else is done.
func newEditor(l *layout, original [][]int32, prefer func(p int) []int32) *editor {
	e := &editor{
		layout: l, original: original, prefer: prefer,
		lists: make([][]int32, len(original)), held: make([][]int32, len(l.zone)),
		gained: make([]int, len(l.zone)), scale: make([]int64, len(l.zone)),
	}
	for n, f := range l.fair {
		e.scale[n] = max(1, f.num<<20/f.den)
	}
	for p, list := range original {
		e.lists[p] = slices.Clone(list)
		for len(e.lists[p]) < l.replicas {
			e.lists[p] = append(e.lists[p], vacant)
		}
		for _, n := range list {
			e.held[n] = append(e.held[n], int32(p))
		}
	}
	for p := range e.lists {
		for len(e.lists[p]) > l.replicas {
			n := e.mostLoaded(p)
			e.drop(p, n)
			i := slices.Index(e.lists[p], vacant)
			e.lists[p] = slices.Delete(e.lists[p], i, i+1)
		}
		for !e.spreadable(e.lists[p], vacant, vacant) {
			e.drop(p, e.mostLoaded(p))
		}
	}
	return e
}

// mostLoaded returns the node of the partition that can best do without its
// replica: the one with the most load for its share among those that share a
// zone, or among all where every zone is there once.
func (e *editor) mostLoaded(p int) int32 {
	best, bestShared := vacant, false
	for _, n := range e.lists[p] {
		if n == vacant {
			continue
		}
		shared := false
		for _, o := range e.lists[p] {
			shared = shared || o != vacant && o != n && e.zone[o] == e.zone[n]
		}
		if best == vacant || shared && !bestShared || shared == bestShared && e.relative(n, 0) > e.relative(best, 0) {
			best, bestShared = n, shared
		}
	}
	return best
}

// relative returns the node's load, with extra added, over its fair share.
func (e *editor) relative(n int32, extra int) int64 {
	return int64(len(e.held[n])+extra) << 40 / e.scale[n]
}

func (e *editor) load(n int32) int { return len(e.held[n]) }

func (e *editor) isOriginal(p int, n int32) bool { return slices.Contains(e.original[p], n) }

// spreadable reports whether the list, with from replaced by to, covers or can
// still come to cover as many zones as it must. from may be vacant (the first
// vacant place is taken), to may be vacant (a place is given up).
func (e *editor) spreadable(list []int32, from, to int32) bool {
	open, distinct := 0, 0
	replaced := from == to // nothing to replace
	var seen [16]int       // zones; lists are at most MaxReplicas+1 long while they are searched
	count := func(n int32) {
		if n == vacant {
			open++
			return
		}
		if z := e.zone[n]; !slices.Contains(seen[:distinct], z) {
			seen[distinct] = z
			distinct++
		}
	}
	for _, n := range list {
		if n == from && !replaced {
			n, replaced = to, true
		}
		count(n)
	}
	return distinct+open >= e.spread
}

// legal reports whether the partition may have to in place of from (vacant: in
// an open place).
func (e *editor) legal(p int, from, to int32) bool {
	list := e.lists[p]
	return !slices.Contains(list, to) && (e.spread == 1 || e.spreadable(list, from, to))
}

// replace puts to where from was; either may be vacant.
func (e *editor) replace(p int, from, to int32) {
	e.lists[p][slices.Index(e.lists[p], from)] = to
	if from != vacant {
		i := slices.Index(e.held[from], int32(p))
		e.held[from] = slices.Delete(e.held[from], i, i+1)
		if !e.isOriginal(p, from) {
			e.gained[from]--
		}
	}
	if to != vacant {
		e.held[to] = append(e.held[to], int32(p))
		if !e.isOriginal(p, to) {
			e.gained[to]++
		}
	}
}

func (e *editor) drop(p int, n int32) { e.replace(p, n, vacant) }

// balance makes the placement obey the layout, with as few newcomers as it takes
// where the search of cancel is not cut short; fewest tells.
func (e *editor) balance() (fewest bool) {
	e.fill()
	e.shed()
	e.pull()
	return e.cancel()
}

// fill finds a node for every vacant place, the partitions with most of them
// first.
func (e *editor) fill() {
	var open []int
	vacancies := func(p int) (v int) {
		for _, n := range e.lists[p] {
			if n == vacant {
				v++
			}
		}
		return v
	}
	for p := range e.lists {
		if vacancies(p) > 0 {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(open, func(a, b int) int { return vacancies(b) - vacancies(a) })
	for _, p := range open {
		for slices.Contains(e.lists[p], vacant) {
			e.fillOne(p)
		}
	}
}

func (e *editor) fillOne(p int) {
	if n := e.target(p, vacant); n != vacant {
		e.replace(p, vacant, n)
		return
	}
	// All that may have it are full: one of them passes a replica on.
	var starts []int32
	for n := range e.zone {
		if e.legal(p, vacant, int32(n)) {
			starts = append(starts, int32(n))
		}
	}
	first := starts[0] // the spread can always be met, see docs/ring.md
	if route := e.route(starts, vacant, p); len(route) > 0 {
		first = route[0].from
		e.follow(route)
	}
	e.replace(p, vacant, first)
}

// shed takes what is above the band away from its node.
func (e *editor) shed() {
	for n := range e.zone {
		n := int32(n)
		for e.load(n) > e.high[n] {
			if p, to := e.shedding(n, true); p >= 0 {
				e.replace(p, n, to)
			} else if p, to := e.shedding(n, false); p >= 0 {
				e.replace(p, n, to)
			} else if route := e.route([]int32{n}, vacant, -1); len(route) > 0 {
				e.follow(route)
			} else {
				break
			}
		}
	}
}

// shedding chooses which of n's replicas goes where, needy receivers (those
// below their band) only or not; p is -1 when there is none.
func (e *editor) shedding(n int32, needy bool) (p int, to int32) {
	p, to = -1, vacant
	var receivers []int32
	for b := range e.zone {
		if b := int32(b); b != n && e.load(b) < e.high[b] && (!needy || e.load(b) < e.low[b]) {
			receivers = append(receivers, b)
		}
	}
	slices.SortStableFunc(receivers, e.compareTargets) // ties by id
	for _, b := range receivers {
		if p := e.candidate(n, b); p >= 0 {
			return p, b
		}
	}
	return p, to
}

// candidate returns the partition whose replica should go from a node to
// another, or -1: a newcomer before an original (which costs), one that a does
// not lead before one that it does.
func (e *editor) candidate(a, b int32) int {
	best, bestRank := -1, 0
	for _, q := range e.held[a] {
		p := int(q)
		rank := 1
		switch {
		case !e.isOriginal(p, a):
			rank = 0
		case e.original[p][0] == a:
			rank = 2
		}
		better := best < 0 || rank < bestRank || rank == bestRank && e.rank(p, b) < e.rank(best, b)
		if better && e.legal(p, a, b) {
			best, bestRank = p, rank
		}
	}
	return best
}

// pull brings every node up to its band.
func (e *editor) pull() {
	for n := range e.zone {
		n := int32(n)
		for e.load(n) < e.low[n] {
			if p, from := e.pulling(n); p >= 0 {
				e.replace(p, from, n)
			} else if route := e.route(e.givers(n), n, -1); len(route) > 0 {
				e.follow(route)
			} else {
				break
			}
		}
	}
}

// givers returns the nodes above their low bound, n left out, the most loaded
// for its share first.
func (e *editor) givers(n int32) []int32 {
	var from []int32
	for a := range e.zone {
		if a := int32(a); a != n && e.load(a) > e.low[a] {
			from = append(from, a)
		}
	}
	slices.SortStableFunc(from, func(a, b int32) int {
		return int(min(1, max(-1, e.relative(b, 0)-e.relative(a, 0))))
	})
	return from
}

func (e *editor) pulling(n int32) (p int, from int32) {
	givers := e.givers(n)
	for _, a := range givers {
		if e.gained[a] == 0 {
			continue
		}
		if p := e.candidate(a, n); p >= 0 && !e.isOriginal(p, a) {
			return p, a // costs nothing
		}
	}
	for _, a := range givers {
		if p := e.candidate(a, n); p >= 0 {
			return p, a
		}
	}
	return -1, vacant
}

// rank breaks ties between nodes for a partition: the lower the better. It is
// the place in the partition's own order, or even-handed.
func (e *editor) rank(p int, n int32) uint64 {
	if e.prefer != nil {
		return uint64(slices.Index(e.prefer(p), n))
	}
	return mix(p, int(n))
}

// target returns the best node to take the place of from in p (vacant: an open
// place) without going above its band, or vacant.
func (e *editor) target(p int, from int32) int32 {
	best := vacant
	for i := range e.zone {
		n := int32(i)
		if e.load(n) < e.high[n] && (best == vacant || e.better(p, n, best)) && e.legal(p, from, n) {
			best = n
		}
	}
	return best
}

// better reports whether p should rather go to a than to b.
func (e *editor) better(p int, a, b int32) bool {
	needA, needB := e.load(a) < e.low[a], e.load(b) < e.low[b]
	if e.prefer != nil && needA == needB {
		return e.rank(p, a) < e.rank(p, b)
	}
	if c := e.compareTargets(a, b); c != 0 {
		return c < 0
	}
	return e.rank(p, a) < e.rank(p, b)
}

// compareTargets orders receivers: those below their band, the emptiest first;
// then by what they gained in this plan over their share, so that what one node
// lost is spread over all others; then by load.
func (e *editor) compareTargets(a, b int32) int {
	needA, needB := e.load(a) < e.low[a], e.load(b) < e.low[b]
	sign := func(d int64) int { return int(min(1, max(-1, d))) }
	byLoad := sign(e.relative(a, 1) - e.relative(b, 1))
	switch {
	case needA != needB:
		if needA {
			return -1
		}
		return 1
	case needA:
		return byLoad
	}
	gain := int64(e.gained[a]+1)<<40/e.scale[a] - int64(e.gained[b]+1)<<40/e.scale[b]
	if c := sign(gain); c != 0 {
		return c
	}
	return byLoad
}
