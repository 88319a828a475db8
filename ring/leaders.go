package ring

import "slices"

// leaders chooses who leads each partition among its replicas, changing as few
// leaders as it takes to have every node in the layout's band of leaders.
type leaders struct {
	*editor
	of   []int32 // by partition: its leader, or vacant
	led  []int   // by node: partitions led
	seat [][]int32
}

// chooseLeaders returns the leader of each partition. The first original of a
// partition is its present leader.
func chooseLeaders(e *editor) []int32 {
	l := &leaders{editor: e, of: make([]int32, len(e.lists)), led: make([]int, len(e.zone))}
	var orphans []int
	for p, list := range e.lists {
		l.of[p] = vacant
		if len(e.original[p]) > 0 && slices.Contains(list, e.original[p][0]) {
			l.set(p, e.original[p][0])
		} else {
			orphans = append(orphans, p)
		}
	}
	for _, p := range orphans {
		l.set(p, l.heir(p))
	}
	l.lower()
	l.raise()
	return l.of
}

func (l *leaders) set(p int, n int32) {
	if old := l.of[p]; old != vacant {
		l.led[old]--
	}
	l.of[p] = n
	l.led[n]++
}

// heir chooses a first leader: one with room before one without, one that has
// the data before one that must fetch it, then the one that leads least for its
// weight, then by the list's order.
func (l *leaders) heir(p int) int32 {
	best := vacant
	key := func(n int32) (int, int64) {
		penalty := 0
		if l.led[n] >= l.leadHigh[n] {
			penalty += 2
		}
		if !l.isOriginal(p, n) {
			penalty++
		}
		return penalty, int64(l.led[n]+1) << 40 / int64(max(1, l.leadHigh[n]))
	}
	for _, n := range l.lists[p] {
		if best == vacant {
			best = n
			continue
		}
		pn, ln := key(n)
		pb, lb := key(best)
		if pn < pb || pn == pb && ln < lb {
			best = n
		}
	}
	return best
}

// lower takes what is above its band from each node. Where the replicas lie so
// that no transfer can, a replica is moved: see widen.
func (l *leaders) lower() {
	room := func(n int32) bool { return l.led[n] < l.leadHigh[n] }
	for i := range l.zone {
		n := int32(i)
		for tries := 0; l.led[n] > l.leadHigh[n] && tries < 4*len(l.lists); tries++ {
			closed, ok := l.pass(n, room)
			if !ok && !l.widen(closed, room) {
				break
			}
		}
	}
}

// transfer hands the leadership of a partition to one of its replicas.
type transfer struct {
	p  int
	to int32
}

// pass moves one leadership away from n along the shortest chain of transfers
// that ends at a node with room. When there is none it returns the set of nodes
// that were reached: all partitions led in it have all their replicas in it.
func (l *leaders) pass(n int32, room func(int32) bool) (closed []bool, ok bool) {
	closed, chain := l.search(n, room)
	for _, t := range chain {
		l.set(t.p, t.to)
	}
	return closed, len(chain) > 0
}

// search finds the chain of pass, its last transfer first.
func (l *leaders) search(n int32, room func(int32) bool) (seen []bool, chain []transfer) {
	type step struct {
		p    int
		from int32
	}
	ledBy := l.byLeader()
	via := make([]step, len(l.zone))
	seen = make([]bool, len(l.zone))
	seen[n] = true
	queue := []int32{n}
	for len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		for _, p := range ledBy[a] {
			for _, b := range l.lists[p] {
				if seen[b] {
					continue
				}
				seen[b], via[b] = true, step{int(p), a}
				if !room(b) {
					queue = append(queue, b)
					continue
				}
				for b != n {
					s := via[b]
					chain = append(chain, transfer{s.p, b})
					b = s.from
				}
				return seen, chain
			}
		}
	}
	return seen, nil
}

func (l *leaders) byLeader() [][]int32 {
	for i := range l.seat {
		l.seat[i] = l.seat[i][:0]
	}
	if l.seat == nil {
		l.seat = make([][]int32, len(l.zone))
	}
	for p, n := range l.of {
		l.seat[n] = append(l.seat[n], int32(p))
	}
	return l.seat
}

// raise gives each node below its band of leaders some, as far as the replicas
// allow; the longest chains of transfers are cut short, for this bound is a wish.
func (l *leaders) raise() {
	for i := range l.zone {
		n := int32(i)
		for l.led[n] < l.leadLow[n] && l.draw(n) {
		}
	}
}

// draw moves one leadership to n along the shortest chain of transfers that
// begins at a node above its low bound.
func (l *leaders) draw(n int32) bool {
	type step struct {
		p  int
		to int32
	}
	via := make([]step, len(l.zone))
	seen := make([]bool, len(l.zone))
	seen[n] = true
	queue := []int32{n}
	for len(queue) > 0 {
		b := queue[0]
		queue = queue[1:]
		var best int32 = vacant
		for _, q := range l.held[b] {
			a := l.of[q]
			if seen[a] {
				continue
			}
			seen[a], via[a] = true, step{int(q), b}
			queue = append(queue, a)
			if l.led[a] > l.leadLow[a] && (best == vacant || l.led[a]-l.leadHigh[a] > l.led[best]-l.leadHigh[best]) {
				best = a
			}
		}
		if best != vacant {
			for a := best; a != n; {
				s := via[a]
				l.set(s.p, s.to)
				a = s.to
			}
			return true
		}
	}
	return false
}

// widen changes one partition that lies wholly in the closed set, so that a node
// outside, which has room to lead or can make some, holds a replica of it: by one
// move where the loads allow it, else by an exchange with another partition. It
// takes what adds fewest newcomers, often none, for a newcomer may as well go
// elsewhere.
func (l *leaders) widen(closed []bool, room func(int32) bool) bool {
	var open []int32
	for n := range l.zone {
		m := int32(n)
		if closed[m] {
			continue
		}
		if _, chain := l.search(m, room); room(m) || len(chain) > 0 {
			open = append(open, m)
		}
	}
	for cost := -1; cost <= 2; cost++ {
		for p, list := range l.lists {
			if !closed[l.of[p]] {
				continue
			}
			for _, s := range list {
				if s == l.of[p] {
					continue
				}
				for _, m := range open {
					if l.legal(p, s, m) && (l.move(p, s, m, cost) || l.exchange(p, s, m, cost)) {
						return true
					}
				}
			}
		}
	}
	return false
}

// adds is by how much replacing a with b in p changes the number of newcomers.
func (l *leaders) adds(p int, a, b int32) (cost int) {
	if !l.isOriginal(p, b) {
		cost++
	}
	if !l.isOriginal(p, a) {
		cost--
	}
	return cost
}

// move puts m in the place of s in p, if the loads have room for that and it
// adds no more than cost newcomers.
func (l *leaders) move(p int, s, m int32, cost int) bool {
	if l.load(m) >= l.high[m] || l.load(s) <= l.low[s] || l.adds(p, s, m) > cost {
		return false
	}
	l.replace(p, s, m)
	return true
}

// exchange puts m in the place of s in p, and s in the place of m in another
// partition that m does not lead, if that adds no more than cost newcomers.
func (l *leaders) exchange(p int, s, m int32, cost int) bool {
	cost -= l.adds(p, s, m)
	for _, h := range l.held[m] {
		q := int(h)
		if q != p && l.of[q] != m && l.adds(q, m, s) <= cost && l.legal(q, m, s) {
			l.replace(p, s, m)
			l.replace(q, m, s)
			return true
		}
	}
	return false
}
