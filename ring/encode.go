package ring

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring/ringpb"
)

// An encoded map is mapMagic, the xxhash64 of the rest as 8 little-endian
// bytes, and the rest: a ringpb.Map.
const (
	mapMagic  = "SDM\x01"
	mapHeader = len(mapMagic) + 8
)

// Marshal encodes the map. Equal maps give equal bytes within one release. The
// error is that of [Map.Validate].
func (m *Map) Marshal() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	pb := m.toProto()
	opt := proto.MarshalOptions{Deterministic: true}
	b, err := opt.MarshalAppend(make([]byte, mapHeader, mapHeader+opt.Size(pb)), pb)
	if err != nil {
		return nil, sundog.Errorf(sundog.Internal, "encode map: %w", err)
	}
	copy(b, mapMagic)
	binary.LittleEndian.PutUint64(b[len(mapMagic):], xxhash.Sum64(b[mapHeader:]))
	return b, nil
}

// toProto needs a map that Validate passed.
func (m *Map) toProto() *ringpb.Map {
	pb := &ringpb.Map{
		Cluster: m.Cluster, Epoch: uint64(m.Epoch),
		Partitions: uint32(m.Partitions), Replicas: uint32(m.Replicas),
		HeartbeatNs: int64(m.Timings.Heartbeat), LeaseNs: int64(m.Timings.Lease),
		NextPool: uint64(m.NextPool), Birth: uint64(m.Birth),
	}
	for _, id := range m.Founders {
		pb.Founders = append(pb.Founders, uint64(id))
	}
	for _, n := range m.Nodes {
		pb.Nodes = append(pb.Nodes, &ringpb.Node{
			Id: uint64(n.ID), Listen: n.Listen, Gossip: n.Gossip, Http: n.HTTP, Zone: n.Zone,
			Weight: uint32(n.Weight), Boot: n.Boot, Catalog: uint32(n.Catalog),
		})
	}
	for _, p := range m.Pools {
		pb.Pools = append(pb.Pools, &ringpb.Pool{
			Id: uint64(p.ID), Name: p.Name, Created: uint64(p.Created),
			Consistency: uint32(p.Spec.Consistency), Replicas: uint32(p.Spec.Replicas), Quota: p.Spec.Quota,
			Acks: uint32(p.Spec.Acks), Durability: uint32(p.Spec.Durability), MaxValue: p.Spec.MaxValue,
		})
	}
	for _, list := range m.Placement {
		r := &ringpb.Replicas{Node: make([]uint32, len(list)), Incarnation: make([]uint32, len(list))}
		for i, x := range list {
			index, _ := m.nodeIndex(x.Node)
			r.Node[i], r.Incarnation[i] = uint32(index), x.Incarnation
		}
		pb.Placement = append(pb.Placement, r)
	}
	return pb
}

// UnmarshalMap decodes what [Map.Marshal] wrote. Bytes of another format, a
// wrong checksum and a map that [Map.Validate] refuses are of kind Corrupt.
// What it allocates is in proportion to len(b).
func UnmarshalMap(b []byte) (*Map, error) {
	if len(b) < mapHeader || string(b[:len(mapMagic)]) != mapMagic {
		return nil, corrupt("%d bytes do not begin as a map does", len(b))
	}
	body := b[mapHeader:]
	if sum := binary.LittleEndian.Uint64(b[len(mapMagic):]); sum != xxhash.Sum64(body) {
		return nil, corrupt("checksum %016x, the bytes have %016x", sum, xxhash.Sum64(body))
	}
	return unmarshalBody(body)
}

func unmarshalBody(body []byte) (*Map, error) {
	var pb ringpb.Map
	if err := proto.Unmarshal(body, &pb); err != nil {
		return nil, corrupt("%w", err)
	}
	m := &Map{
		Cluster: pb.Cluster, Epoch: sundog.Epoch(pb.Epoch),
		Partitions: int(pb.Partitions), Replicas: int(pb.Replicas),
		Timings:  sundog.Timings{Heartbeat: time.Duration(pb.HeartbeatNs), Lease: time.Duration(pb.LeaseNs)},
		NextPool: sundog.PoolID(pb.NextPool), Birth: sundog.Epoch(pb.Birth),
	}
	for _, id := range pb.Founders {
		m.Founders = append(m.Founders, sundog.NodeID(id))
	}
	for _, n := range pb.Nodes {
		if n.Catalog > math.MaxUint8 {
			return nil, corrupt("catalog role %d", n.Catalog)
		}
		m.Nodes = append(m.Nodes, Node{
			ID: sundog.NodeID(n.Id), Listen: n.Listen, Gossip: n.Gossip, HTTP: n.Http, Zone: n.Zone,
			Weight: int(n.Weight), Boot: n.Boot, Catalog: CatalogRole(n.Catalog),
		})
	}
	for _, p := range pb.Pools {
		if max(p.Consistency, p.Acks, p.Durability) > math.MaxUint8 {
			return nil, corrupt("pool %d: a choice is out of range", p.Id)
		}
		m.Pools = append(m.Pools, Pool{
			ID: sundog.PoolID(p.Id), Name: p.Name, Created: sundog.Epoch(p.Created),
			Spec: sundog.PoolSpec{
				Consistency: sundog.Consistency(p.Consistency), Replicas: int(p.Replicas), Quota: p.Quota,
				Acks: sundog.Acks(p.Acks), Durability: sundog.Durability(p.Durability), MaxValue: p.MaxValue,
			},
		})
	}
	if err := m.decodePlacement(&pb); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, corrupt("%w", err)
	}
	return m, nil
}

func (m *Map) decodePlacement(pb *ringpb.Map) error {
	for p, r := range pb.Placement {
		if len(r.Node) != len(r.Incarnation) {
			return corrupt("partition %d: %d nodes, %d incarnations", p, len(r.Node), len(r.Incarnation))
		}
		list := make(Replicas, len(r.Node))
		for i, index := range r.Node {
			if int64(index) >= int64(len(m.Nodes)) {
				return corrupt("partition %d: node %d of %d", p, index, len(m.Nodes))
			}
			list[i] = Replica{Node: m.Nodes[index].ID, Incarnation: r.Incarnation[i]}
		}
		m.Placement = append(m.Placement, list)
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return sundog.Errorf(sundog.Corrupt, "map: "+format, args...)
}
