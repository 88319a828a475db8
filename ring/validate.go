package ring

import (
	"time"
	"unicode/utf8"

	"github.com/sundog-kv/sundog"
)

// Limits of a valid map.
const (
	maxNodes  = 1 << 16
	maxString = 512 // bytes of an address or a zone
	maxTiming = time.Hour
)

// Validate says what is wrong with the map; the error is of kind Invalid. A map
// that passes can be encoded and will pass [UnmarshalMap] everywhere.
func (m *Map) Validate() error {
	if !validCluster(m.Cluster) {
		return invalid("cluster id %.64q: want 32 lower-case hexadecimal digits", m.Cluster)
	}
	if !sundog.ValidPartitions(m.Partitions) {
		return invalid("%d partitions: want a power of two from 1 to %d", m.Partitions, sundog.Slots)
	}
	if m.Replicas < 0 || m.Replicas > sundog.MaxReplicas {
		return invalid("%d replicas: want 0 to %d", m.Replicas, sundog.MaxReplicas)
	}
	if t := m.Timings; t.Heartbeat <= 0 || t.Heartbeat > maxTiming || t.Lease <= 0 || t.Lease > t.Heartbeat {
		return invalid("timings %v: want 0 < lease <= heartbeat <= %v", t, maxTiming)
	}
	if err := m.validateNodes(); err != nil {
		return err
	}
	if err := m.validatePools(); err != nil {
		return err
	}
	return m.validatePlacement()
}

func invalid(format string, args ...any) error {
	return sundog.Errorf(sundog.Invalid, "map: "+format, args...)
}

func validCluster(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func validString(s string) bool { return len(s) <= maxString && utf8.ValidString(s) }

func (m *Map) validateNodes() error {
	if len(m.Nodes) > maxNodes {
		return invalid("%d nodes: at most %d", len(m.Nodes), maxNodes)
	}
	var last sundog.NodeID
	for _, n := range m.Nodes {
		switch {
		case n.ID <= last:
			return invalid("node %s after %s: ids must rise", n.ID, last)
		case !validString(n.Listen) || !validString(n.Gossip) || !validString(n.HTTP) || !validString(n.Zone):
			return invalid("node %s: an address or zone is no UTF-8 of at most %d bytes", n.ID, maxString)
		case n.Weight < 1 || n.Weight > MaxWeight:
			return invalid("node %s: weight %d: want 1 to %d", n.ID, n.Weight, MaxWeight)
		case n.Catalog > Standby:
			return invalid("node %s: %v", n.ID, n.Catalog)
		}
		last = n.ID
	}
	seen := make(map[sundog.NodeID]bool, len(m.Founders))
	for _, id := range m.Founders {
		if id == 0 || seen[id] {
			return invalid("founder %s is zero or listed twice", id)
		}
		seen[id] = true
	}
	return nil
}

func (m *Map) validatePools() error {
	var last sundog.PoolID
	names := make(map[string]bool, len(m.Pools))
	for _, p := range m.Pools {
		if p.ID <= last || p.ID >= m.NextPool {
			return invalid("pool id %d after %d: ids must rise and be below the next id %d", p.ID, last, m.NextPool)
		}
		if err := sundog.CheckPoolName(p.Name); err != nil {
			return invalid("pool %d: %w", p.ID, err)
		}
		if names[p.Name] {
			return invalid("pool name %q is there twice", p.Name)
		}
		if err := p.Spec.Validate(); err != nil {
			return invalid("pool %q: %w", p.Name, err)
		}
		if p.Created > m.Epoch {
			return invalid("pool %q: made in epoch %d, after this map's %d", p.Name, p.Created, m.Epoch)
		}
		last, names[p.Name] = p.ID, true
	}
	return nil
}

func (m *Map) validatePlacement() error {
	if len(m.Placement) == 0 {
		if m.Birth != 0 || m.Replicas != 0 {
			return invalid("birth %d and %d replicas without a placement", m.Birth, m.Replicas)
		}
		return nil
	}
	if len(m.Placement) != m.Partitions || m.Replicas == 0 || m.Birth == 0 || m.Birth > m.Epoch {
		return invalid("placement of %d partitions of %d, %d replicas, birth %d, epoch %d",
			len(m.Placement), m.Partitions, m.Replicas, m.Birth, m.Epoch)
	}
	for p, list := range m.Placement {
		// One more than the limit: a replica is added before another is removed.
		if len(list) == 0 || len(list) > sundog.MaxReplicas+1 {
			return invalid("partition %d has %d replicas", p, len(list))
		}
		for i, r := range list {
			if _, ok := m.nodeIndex(r.Node); !ok {
				return invalid("partition %d is placed on %s, which is no node of the map", p, r.Node)
			}
			if r.Incarnation == 0 || list[:i].Index(r.Node) >= 0 {
				return invalid("partition %d: replica %s has no incarnation or is there twice", p, r.ServerID())
			}
		}
	}
	return nil
}
