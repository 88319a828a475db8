package ring

import "github.com/sundog-kv/sundog"

// CheckJoin says why a cluster of this map cannot give work to a total of nodes
// nodes, the joining ones included; nil when it can. A node works when it holds
// a replica, so the limit is partitions × replicas; the replica count is that of
// the strong groups or, before their birth, the default of 3. The error is of
// kind Conflict and tells an operator what to do.
func CheckJoin(m *Map, nodes int) error {
	replicas := m.Replicas
	if replicas == 0 {
		replicas = sundog.PoolSpec{}.WithDefaults().Replicas
	}
	limit := m.Partitions * replicas
	if nodes <= limit {
		return nil
	}
	return sundog.Errorf(sundog.Conflict,
		"%d partitions of %d replicas each give work to at most %d nodes, and this would be node %d: it would hold nothing. "+
			"The number of partitions is fixed when a cluster is founded; found a new one with --partitions of at least 4 times the nodes you expect, or leave this node out",
		m.Partitions, replicas, limit, nodes)
}
