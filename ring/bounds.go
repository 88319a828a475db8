package ring

// share is a node's fair part of the load, a fraction: num/den replicas.
type share struct{ num, den int64 }

func (s share) floor() int { return int(s.num / s.den) }
func (s share) ceil() int  { return int((s.num + s.den - 1) / s.den) }

// band is the range of loads that count as balanced around a fair share t: from
// min(floor(t), ceil(0.9 t)) to max(ceil(t), floor(1.1 t)), both in whole
// replicas. It always contains floor(t) and ceil(t), and so t itself.
func (s share) band() (low, high int) {
	low = min(s.floor(), share{9 * s.num, 10 * s.den}.ceil())
	high = max(s.ceil(), share{11 * s.num, 10 * s.den}.floor())
	return low, high
}

// layout is what a placement of partitions × replicas over nodes has to obey.
// Slices are by node index.
type layout struct {
	partitions, replicas int

	zone   []int // zone number of each node
	spread int   // distinct zones that the replicas of each partition must cover

	fair              []share // replicas that each node should hold
	low, high         []int   // band of fair, high at most partitions
	leadLow, leadHigh []int   // band of the node's share of leaders
}

// newLayout computes the bounds. It needs 1 <= replicas <= len(nodes).
func newLayout(nodes []Node, partitions, replicas int) *layout {
	l := &layout{partitions: partitions, replicas: replicas, zone: make([]int, len(nodes))}
	numbers := make(map[string]int)
	var members [][]int // nodes of each zone
	var total int64
	for i, n := range nodes {
		z, ok := numbers[n.Zone]
		if !ok {
			z = len(members)
			numbers[n.Zone] = z
			members = append(members, nil)
		}
		l.zone[i] = z
		members[z] = append(members[z], i)
		total += int64(n.Weight)
	}
	l.spread = min(replicas, len(members))
	if replicas <= len(members) {
		l.fair = sharesZoneCapped(nodes, members, partitions, replicas)
	} else {
		l.fair = sharesZoneRaised(nodes, members, partitions, replicas)
	}
	for i, n := range nodes {
		low, high := l.fair[i].band()
		l.low, l.high = append(l.low, low), append(l.high, min(high, partitions))
		low, high = share{int64(partitions) * int64(n.Weight), total}.band()
		l.leadLow, l.leadHigh = append(l.leadLow, low), append(l.leadHigh, high)
	}
	return l
}

func weightOf(nodes []Node, members []int) (w int64) {
	for _, i := range members {
		w += int64(nodes[i].Weight)
	}
	return w
}

// sharesZoneCapped serves when every replica of a partition has a zone of its
// own, so that a zone holds at most one replica of each: shares go by weight,
// and what a zone cannot hold goes to the others by weight.
func sharesZoneCapped(nodes []Node, members [][]int, partitions, replicas int) []share {
	fair := make([]share, len(nodes))
	full := make([]bool, len(members))
	limit, left := int64(partitions), int64(partitions)*int64(replicas)
	weight := make([]int64, len(members))
	var open int64 // weight of the zones that are not full
	for z, m := range members {
		weight[z] = weightOf(nodes, m)
		open += weight[z]
	}
	for again := true; again; {
		again = false
		for z := range members {
			if !full[z] && left*weight[z] > limit*open {
				full[z], again = true, true
				left -= limit
				open -= weight[z]
			}
		}
	}
	for z, m := range members {
		for _, i := range m {
			if w := int64(nodes[i].Weight); full[z] {
				fair[i] = share{limit * w, weight[z]}
			} else {
				fair[i] = share{left * w, open}
			}
		}
	}
	return fair
}

// sharesZoneRaised serves when there are more replicas than zones, so that every
// zone holds at least one replica of each partition: shares go by weight, no
// node above one replica a partition, and a zone that would get less than it
// must hold is raised to that at the others' cost.
func sharesZoneRaised(nodes []Node, members [][]int, partitions, replicas int) []share {
	fair := make([]share, len(nodes))
	raised := make([]bool, len(members))
	limit, left := int64(partitions), int64(partitions)*int64(replicas)
	for again := true; again; {
		again = false
		var rest []int
		for z, m := range members {
			if !raised[z] {
				rest = append(rest, m...)
			}
		}
		full, sum, weight := waterFill(nodes, rest, limit, left)
		for z, m := range members {
			if raised[z] {
				continue
			}
			var fullHere, openHere int64
			for _, i := range m {
				if full[i] {
					fullHere++
					fair[i] = share{limit, 1}
				} else {
					openHere += int64(nodes[i].Weight)
					fair[i] = share{sum * int64(nodes[i].Weight), weight}
				}
			}
			if fullHere == 0 && sum*openHere < limit*weight {
				raised[z], again = true, true
				left -= limit
				all := weightOf(nodes, m)
				for _, i := range m {
					fair[i] = share{limit * int64(nodes[i].Weight), all}
				}
			}
		}
	}
	return fair
}

// waterFill shares left by weight among the nodes at index, none above limit. It
// returns who is at the limit, and the rest of left and of the weight, which the
// others divide.
func waterFill(nodes []Node, index []int, limit, left int64) (full map[int]bool, rest, weight int64) {
	full = make(map[int]bool)
	weight = weightOf(nodes, index)
	for again := true; again; {
		again = false
		for _, i := range index {
			if w := int64(nodes[i].Weight); !full[i] && left*w > limit*weight {
				full[i], again = true, true
				left -= limit
				weight -= w
			}
		}
	}
	return full, left, weight
}
