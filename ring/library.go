package ring

import (
	"encoding/binary"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// library asks buraksezer/consistent for the order in which a partition prefers
// the nodes: its owner first, by consistent hashing with bounded loads, then the
// others as GetClosestNForPartition gives them.
//
// That function orders members by the hash of their names, which is the same
// order for every partition: each owner would have one fixed successor, and a
// dead owner's load would fall on it alone. So the hash of a *name* is seeded
// with the partition asked about, and every partition walks its own circle. The
// hashes that place owners are not seeded.
type library struct {
	ring   *consistent.Consistent
	hash   *seededHash
	byName map[string]int
}

// member is a node under the name that the library hashes.
type member string

func (m member) String() string { return string(m) }

// seededHash is xxhash64, of names as the type library explains. Names are 16
// bytes; the library's other inputs, virtual nodes ("%d:name") and partition
// numbers (8 bytes), never are.
type seededHash struct{ seed uint64 }

const nameLength = 16

func (h *seededHash) Sum64(b []byte) uint64 {
	if len(b) != nameLength {
		return xxhash.Sum64(b)
	}
	d := xxhash.NewWithSeed(h.seed)
	d.Write(b) // never fails
	return d.Sum64()
}

// Settings of the library; a change makes another bootstrap placement. Load 1
// keeps owners at or below ceil(mean), the leaders' bound.
const (
	virtualNodes = 20
	ownerLoad    = 1.0
)

func newLibrary(nodes []Node, partitions int) *library {
	l := &library{hash: new(seededHash), byName: make(map[string]int, len(nodes))}
	members := make([]consistent.Member, len(nodes))
	for i, n := range nodes {
		members[i] = member(n.ID.String())
		l.byName[n.ID.String()] = i
	}
	l.ring = consistent.New(members, consistent.Config{
		Hasher:            l.hash,
		PartitionCount:    partitions,
		ReplicationFactor: virtualNodes,
		Load:              ownerLoad,
	})
	return l
}

// order returns all nodes, by index, in the partition's order of preference.
func (l *library) order(p int) ([]int32, error) {
	l.hash.seed = uint64(p) + 1
	members, err := l.ring.GetClosestNForPartition(p, len(l.byName))
	if err != nil {
		return nil, sundog.Errorf(sundog.Internal, "preference order of partition %d: %w", p, err)
	}
	order := make([]int32, len(members))
	for i, m := range members {
		order[i] = int32(l.byName[m.String()])
	}
	return order, nil
}

// mix hashes a pair to break ties without favour and without chance.
func mix(a, b int) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(a))
	binary.LittleEndian.PutUint64(buf[8:], uint64(b))
	return xxhash.Sum64(buf[:])
}
