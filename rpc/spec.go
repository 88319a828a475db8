package rpc

import (
	"math"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// SpecMessage lays out a pool's spec for a control message.
func SpecMessage(s sundog.PoolSpec) *rpcpb.PoolSpec {
	return &rpcpb.PoolSpec{
		Consistency: uint32(s.Consistency), Replicas: uint32(s.Replicas), Quota: s.Quota,
		Acks: uint32(s.Acks), Durability: uint32(s.Durability), MaxValue: s.MaxValue,
	}
}

// SpecOf reads a pool's spec of a control message; nil is the zero spec. It
// judges nothing, but numbers that no enumeration has stay out of it, whatever
// they are modulo 256.
func SpecOf(s *rpcpb.PoolSpec) sundog.PoolSpec {
	narrow := func(v uint32) uint8 { return uint8(min(v, math.MaxUint8)) }
	return sundog.PoolSpec{
		Consistency: sundog.Consistency(narrow(s.GetConsistency())), Replicas: int(s.GetReplicas()), Quota: s.GetQuota(),
		Acks: sundog.Acks(narrow(s.GetAcks())), Durability: sundog.Durability(narrow(s.GetDurability())), MaxValue: s.GetMaxValue(),
	}
}
