package catalog

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog/catalogpb"
	"github.com/sundog-kv/sundog/ring"
)

// version is what this release writes into commands and snapshots, and the
// newest it reads.
const version = 1

// Founding is what the founders agreed on.
type Founding struct {
	Cluster    string // 32 hexadecimal digits
	Partitions int
	Timings    sundog.Timings
	Founders   []sundog.NodeID
}

// Start is one start of a node: who and where it is now. Nonce is random per
// start, so that two directories with one boot counter are told apart.
type Start struct {
	Node  ring.Node // Catalog is ignored
	Nonce uint64
}

// Found is the command that begins a cluster. Repeating it is harmless; another
// cluster's is a Conflict.
func Found(f Founding) []byte {
	founders := make([]uint64, len(f.Founders))
	for i, id := range f.Founders {
		founders[i] = uint64(id)
	}
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_Found{Found: &catalogpb.Found{
		Cluster: f.Cluster, Partitions: uint32(f.Partitions), Founders: founders,
		HeartbeatNs: int64(f.Timings.Heartbeat), LeaseNs: int64(f.Timings.Lease),
	}}})
}

// NodeUp is the command that registers a node's start: new nodes join by it,
// known ones renew their addresses and boot counter.
func NodeUp(s Start) []byte {
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_NodeUp{NodeUp: &catalogpb.NodeUp{
		Id: uint64(s.Node.ID), Listen: s.Node.Listen, Gossip: s.Node.Gossip, Http: s.Node.HTTP,
		Zone: s.Node.Zone, Weight: uint32(s.Node.Weight), Boot: s.Node.Boot, Nonce: s.Nonce,
	}}})
}

// PoolCreate is the command that makes a pool. Birth is the placement of the
// strong groups, taken only when there is none yet.
func PoolCreate(name string, spec sundog.PoolSpec, birth []ring.Replicas) []byte {
	rows := make([]*catalogpb.Replicas, len(birth))
	for i, replicas := range birth {
		row := &catalogpb.Replicas{}
		for _, r := range replicas {
			row.Replicas = append(row.Replicas, &catalogpb.Replica{Node: uint64(r.Node), Incarnation: r.Incarnation})
		}
		rows[i] = row
	}
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_PoolCreate{PoolCreate: &catalogpb.PoolCreate{
		Name: name, Spec: encodeSpec(spec), Birth: rows,
	}}})
}

// Change names the fields of a pool's spec that change; nil leaves what is there
// when the command is applied, so that two changes of different fields both
// survive, whatever their proposers knew of each other.
type Change struct {
	Consistency *sundog.Consistency
	Replicas    *int
	Quota       *int64
	Acks        *sundog.Acks
	Durability  *sundog.Durability
	MaxValue    *int64
}

// PoolSet is the command that changes a pool's spec.
func PoolSet(name string, c Change) []byte {
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_PoolSet{PoolSet: &catalogpb.PoolSet{
		Name: name, Change: &catalogpb.SpecChange{
			Consistency: widen(c.Consistency), Replicas: widen(c.Replicas), Quota: c.Quota,
			Acks: widen(c.Acks), Durability: widen(c.Durability), MaxValue: c.MaxValue,
		},
	}}})
}

// widen makes an optional field of a number that is small and not negative.
func widen[T ~uint8 | ~int](v *T) *uint32 {
	if v == nil {
		return nil
	}
	return new(uint32(*v))
}

// changed is a spec after a command that sets it.
func changed(spec sundog.PoolSpec, c *catalogpb.PoolSet) sundog.PoolSpec {
	if c.GetChange() == nil {
		return decodeSpec(c.GetSpec())
	}
	next := encodeSpec(spec)
	take(&next.Consistency, c.Change.Consistency)
	take(&next.Replicas, c.Change.Replicas)
	take(&next.Quota, c.Change.Quota)
	take(&next.Acks, c.Change.Acks)
	take(&next.Durability, c.Change.Durability)
	take(&next.MaxValue, c.Change.MaxValue)
	return decodeSpec(next)
}

func take[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// PoolDelete is the command that removes a pool; its id is never given again.
func PoolDelete(name string) []byte {
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_PoolDelete{PoolDelete: &catalogpb.PoolDelete{Name: name}}})
}

// SetRole is the command that says what a node is to be in the catalog's group.
func SetRole(node sundog.NodeID, role ring.CatalogRole) []byte {
	return encode(&catalogpb.Command{Kind: &catalogpb.Command_Role{Role: &catalogpb.Role{Node: uint64(node), Role: uint32(role)}}})
}

// encode cannot fail: protobuf marshals every message of valid UTF-8, and what
// people may write is checked before ([sundog.CheckPoolName], the node's config).
func encode(c *catalogpb.Command) []byte {
	c.Version = version
	b, err := proto.Marshal(c)
	if err != nil {
		panic("catalog: a command does not marshal: " + err.Error())
	}
	return b
}

func encodeSpec(s sundog.PoolSpec) *catalogpb.Spec {
	return &catalogpb.Spec{
		Consistency: uint32(s.Consistency), Replicas: uint32(s.Replicas), Quota: s.Quota,
		Acks: uint32(s.Acks), Durability: uint32(s.Durability), MaxValue: s.MaxValue,
	}
}

func decodeSpec(s *catalogpb.Spec) sundog.PoolSpec {
	return sundog.PoolSpec{
		Consistency: sundog.Consistency(s.GetConsistency()), Replicas: int(s.GetReplicas()), Quota: s.GetQuota(),
		Acks: sundog.Acks(s.GetAcks()), Durability: sundog.Durability(s.GetDurability()), MaxValue: s.GetMaxValue(),
	}
}

func decodeFounding(f *catalogpb.Found) Founding {
	out := Founding{
		Cluster: f.GetCluster(), Partitions: int(f.GetPartitions()),
		Timings: sundog.Timings{Heartbeat: time.Duration(f.GetHeartbeatNs()), Lease: time.Duration(f.GetLeaseNs())},
	}
	for _, id := range f.GetFounders() {
		out.Founders = append(out.Founders, sundog.NodeID(id))
	}
	return out
}

func decodeStart(n *catalogpb.NodeUp) Start {
	return Start{Nonce: n.GetNonce(), Node: ring.Node{
		ID: sundog.NodeID(n.GetId()), Listen: n.GetListen(), Gossip: n.GetGossip(), HTTP: n.GetHttp(),
		Zone: n.GetZone(), Weight: int(n.GetWeight()), Boot: n.GetBoot(),
	}}
}

func decodeBirth(rows []*catalogpb.Replicas) []ring.Replicas {
	out := make([]ring.Replicas, len(rows))
	for i, row := range rows {
		for _, r := range row.GetReplicas() {
			out[i] = append(out[i], ring.Replica{Node: sundog.NodeID(r.GetNode()), Incarnation: r.GetIncarnation()})
		}
	}
	return out
}
