package ring

import (
	"cmp"
	"slices"

	"github.com/sundog-kv/sundog"
)

// Bootstrap lays a number of partitions, replicas of each, over nodes for the
// first time; every replica has incarnation 1. It is the order of preference of
// buraksezer/consistent v1.0.0 (owner, then closest nodes; see the type library),
// edited as [Plan] edits: a placement that is within the bounds as the library
// gives it stays as it is, and otherwise as few replicas as it takes are others.
//
// Errors: Invalid for arguments out of range or a node listed twice, Unavailable
// for fewer nodes than replicas.
func Bootstrap(nodes []Node, partitions, replicas int) ([]Replicas, error) {
	if !sundog.ValidPartitions(partitions) {
		return nil, sundog.Errorf(sundog.Invalid, "%d partitions: want a power of two from 1 to %d", partitions, sundog.Slots)
	}
	nodes, err := checkNodes(nodes, replicas)
	if err != nil {
		return nil, err
	}
	lib := newLibrary(nodes, partitions)
	orders := make([][]int32, partitions)
	raw := make([][]int32, partitions)
	for p := range orders {
		if orders[p], err = lib.order(p); err != nil {
			return nil, err
		}
		raw[p] = orders[p][:replicas:replicas]
	}
	e := newEditor(newLayout(nodes, partitions, replicas), raw, func(p int) []int32 { return orders[p] })
	e.balance()
	leader := chooseLeaders(e)
	out := make([]Replicas, partitions)
	for p, list := range e.lists {
		slices.SortFunc(list, func(a, b int32) int {
			return cmp.Or(-boolCompare(a == leader[p], b == leader[p]), cmp.Compare(e.rank(p, a), e.rank(p, b)))
		})
		for _, n := range list {
			out[p] = append(out[p], Replica{Node: nodes[n].ID, Incarnation: 1})
		}
	}
	return out, nil
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Plan edits a placement for the nodes that are to carry it: replicas on others
// (dead, draining) are replaced, and loads are brought within the bounds of
// docs/ring.md for replicas and for leaders, zones covered, with as few replica
// moves as it takes.
//
// Moves come in an order in which they may be executed one after the other:
// partitions that lost most replicas first, and none onto a node that is full
// until a replica has left it, but where moves wait for each other in a circle.
// When all are executed each list holds the replicas of target; its order, the
// preferred leader first, is then to be taken over too, and may differ even
// where nothing moves. A replica that is not there yet has incarnation 0 in
// target.
//
// Errors: Invalid for arguments out of range, a node listed twice, or a list
// with a node twice; Unavailable for fewer nodes than replicas (then nothing can
// be done until a node joins: target is nil). current is not changed.
func Plan(current []Replicas, nodes []Node, replicas int) (target []Replicas, moves []Move, err error) {
	nodes, err = checkNodes(nodes, replicas)
	if err != nil {
		return nil, nil, err
	}
	index := make(map[sundog.NodeID]int32, len(nodes))
	for i, n := range nodes {
		index[n.ID] = int32(i)
	}
	original := make([][]int32, len(current))
	for p, list := range current {
		if len(list) > sundog.MaxReplicas+1 {
			return nil, nil, sundog.Errorf(sundog.Invalid, "partition %d has %d replicas", p, len(list))
		}
		for i, r := range list {
			if list[:i].Index(r.Node) >= 0 {
				return nil, nil, sundog.Errorf(sundog.Invalid, "partition %d has two replicas on node %s", p, r.Node)
			}
			if n, ok := index[r.Node]; ok {
				original[p] = append(original[p], n)
			}
		}
	}
	if len(current) == 0 {
		return nil, nil, nil
	}
	e := newEditor(newLayout(nodes, len(current), replicas), original, nil)
	e.balance()
	leader := chooseLeaders(e)
	steps := make([][]Move, len(current))
	target = make([]Replicas, len(current))
	for p := range current {
		steps[p] = e.steps(p, current[p], nodes, index)
		list := current[p]
		for _, mv := range steps[p] {
			if list, err = mv.Apply(list, 0); err != nil {
				return nil, nil, sundog.Errorf(sundog.Internal, "plan: %w", err)
			}
		}
		first := list.Index(nodes[leader[p]].ID)
		target[p] = append(Replicas{list[first]}, slices.Delete(slices.Clone(list), first, first+1)...)
	}
	return target, schedule(steps, e, index), nil
}

// checkNodes returns the nodes sorted by id.
func checkNodes(nodes []Node, replicas int) ([]Node, error) {
	if replicas < 1 || replicas > sundog.MaxReplicas {
		return nil, sundog.Errorf(sundog.Invalid, "%d replicas: want 1 to %d", replicas, sundog.MaxReplicas)
	}
	if len(nodes) < replicas {
		return nil, sundog.Errorf(sundog.Unavailable, "%d replicas need as many nodes, and there are %d", replicas, len(nodes))
	}
	if len(nodes) > maxNodes {
		return nil, sundog.Errorf(sundog.Invalid, "%d nodes: at most %d", len(nodes), maxNodes)
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	var last sundog.NodeID
	for _, n := range nodes {
		if n.ID == last {
			return nil, sundog.Errorf(sundog.Invalid, "node %s is zero or listed twice", n.ID)
		}
		if n.Weight < 1 || n.Weight > MaxWeight {
			return nil, sundog.Errorf(sundog.Invalid, "node %s has weight %d: want 1 to %d", n.ID, n.Weight, MaxWeight)
		}
		last = n.ID
	}
	return nodes, nil
}
