package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sundog-kv/sundog"
)

// Map is one committed version of the cluster: who is in it, which pools exist
// and where their partitions are meant to be. A Map is immutable once it is
// shared; whoever changes it works on a [Map.Clone].
type Map struct {
	Cluster    string          // cluster id: 32 lower-case hexadecimal digits
	Epoch      sundog.Epoch    // catalog index of the change that made this version
	Partitions int             // P, fixed at founding
	Replicas   int             // replica count of the strong groups; 0 before their birth
	Timings    sundog.Timings  // fixed at founding
	Nodes      []Node          // sorted by ID
	Pools      []Pool          // sorted by ID
	NextPool   sundog.PoolID   // the next id to give; every id in Pools is below it
	Placement  []Replicas      // one list a partition once born, else empty
	Birth      sundog.Epoch    // step in which the strong groups were born; 0 before
	Founders   []sundog.NodeID // who accepted the founding, in the order it lists them
}

// CatalogRole says what a node does in the catalog's Raft group.
type CatalogRole uint8

// The roles. Numbers are stored and append-only.
const (
	None    CatalogRole = 0 // pulls the map from others
	Voter   CatalogRole = 1 // votes
	Standby CatalogRole = 2 // follows without a vote, ready to replace a voter
)

// String returns "none", "voter" or "standby".
func (r CatalogRole) String() string {
	switch r {
	case None:
		return "none"
	case Voter:
		return "voter"
	case Standby:
		return "standby"
	}
	return fmt.Sprintf("catalog role %d", uint8(r))
}

// MaxWeight is the largest weight of a node.
const MaxWeight = 1000

// Node is one member of the cluster.
type Node struct {
	ID      sundog.NodeID
	Listen  string      // host:port for clients and nodes
	Gossip  string      // host:port for gossip
	HTTP    string      // host:port for admin
	Zone    string      // failure domain; all nodes without one share the zone ""
	Weight  int         // share of the load relative to other nodes, 1 to MaxWeight
	Boot    uint64      // boot counter of its data directory, last seen
	Catalog CatalogRole // its part in the catalog group
}

// Pool is a pool as the catalog knows it.
type Pool struct {
	ID      sundog.PoolID
	Name    string
	Spec    sundog.PoolSpec
	Created sundog.Epoch // the step that made it
}

// Replica is one placed copy of a partition. The incarnation sets apart the
// successive copies that one node may hold: the catalog step that adds a replica
// gives it, and it is never given again.
type Replica struct {
	Node        sundog.NodeID
	Incarnation uint32 // 1 and up; 0 only in a plan, for a replica not added yet
}

// ServerID is the replica's Raft server id, "node/incarnation".
func (r Replica) ServerID() string {
	return r.Node.String() + "/" + strconv.FormatUint(uint64(r.Incarnation), 10)
}

// ParseServerID reads what [Replica.ServerID] prints, and nothing else (no
// sign, no leading zero, no incarnation 0); kind Invalid otherwise.
func ParseServerID(s string) (Replica, error) {
	node, inc, _ := strings.Cut(s, "/")
	id, err := sundog.ParseNodeID(node)
	if err == nil {
		n, perr := strconv.ParseUint(inc, 10, 32)
		r := Replica{Node: id, Incarnation: uint32(n)}
		if perr == nil && n > 0 && r.ServerID() == s {
			return r, nil
		}
	}
	return Replica{}, sundog.Errorf(sundog.Invalid, "server id %.100q: want node/incarnation", s)
}

// Replicas is where a partition lives, in order of preference: the first is the
// one that should lead (strong pools) or be asked first (eventual pools).
type Replicas []Replica

// Index returns the position of the node's replica in the list, or -1.
func (r Replicas) Index(id sundog.NodeID) int {
	return slices.IndexFunc(r, func(x Replica) bool { return x.Node == id })
}

// Node returns the node with this id.
func (m *Map) Node(id sundog.NodeID) (Node, bool) {
	i, ok := m.nodeIndex(id)
	if !ok {
		return Node{}, false
	}
	return m.Nodes[i], true
}

func (m *Map) nodeIndex(id sundog.NodeID) (int, bool) {
	return slices.BinarySearchFunc(m.Nodes, id, func(n Node, id sundog.NodeID) int { return cmp.Compare(n.ID, id) })
}

// Pool returns the pool with this id.
func (m *Map) Pool(id sundog.PoolID) (Pool, bool) {
	i, ok := slices.BinarySearchFunc(m.Pools, id, func(p Pool, id sundog.PoolID) int { return cmp.Compare(p.ID, id) })
	if !ok {
		return Pool{}, false
	}
	return m.Pools[i], true
}

// PoolByName returns the pool of this name.
func (m *Map) PoolByName(name string) (Pool, bool) {
	for _, p := range m.Pools {
		if p.Name == name {
			return p, true
		}
	}
	return Pool{}, false
}

// PartitionOf returns the partition that the key belongs to.
func (m *Map) PartitionOf(key []byte) sundog.Partition {
	return sundog.PartitionOf(key, m.Partitions)
}

// Owners returns the partition's replicas, the preferred owner first; nil when
// the partitions are not placed yet or p is out of range. The list is the map's
// own and must not be changed.
func (m *Map) Owners(p sundog.Partition) Replicas {
	if int(p) >= len(m.Placement) {
		return nil
	}
	return m.Placement[p]
}

// Clone returns a deep copy for whoever makes the next version.
func (m *Map) Clone() *Map {
	c := *m
	c.Nodes = slices.Clone(m.Nodes)
	c.Pools = slices.Clone(m.Pools)
	c.Founders = slices.Clone(m.Founders)
	c.Placement = clonePlacement(m.Placement)
	return &c
}

func clonePlacement(in []Replicas) []Replicas {
	if in == nil {
		return nil
	}
	out := make([]Replicas, len(in))
	for i, r := range in {
		out[i] = slices.Clone(r)
	}
	return out
}
