package sundog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNodeID(t *testing.T) {
	seen := make(map[NodeID]bool)
	for range 100 {
		id := NewNodeID()
		require.NotZero(t, id)
		require.False(t, seen[id])
		seen[id] = true
		require.Len(t, id.String(), 16)
		back, err := ParseNodeID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, back)
		text, err := json.Marshal(map[NodeID]NodeID{id: id})
		require.NoError(t, err)
		require.Equal(t, `{"`+id.String()+`":"`+id.String()+`"}`, string(text))
		var m map[NodeID]NodeID
		require.NoError(t, json.Unmarshal(text, &m))
		require.Equal(t, map[NodeID]NodeID{id: id}, m)
	}
	require.Equal(t, "0000000000000abc", NodeID(0xabc).String())
	for _, s := range []string{"", "abc", "0000000000000000", "00000000000000000", "000000000000000g", "+000000000000001", "0x00000000000001"} {
		_, err := ParseNodeID(s)
		require.ErrorIs(t, err, Invalid, "%q", s)
		id := NodeID(7)
		require.ErrorIs(t, id.UnmarshalText([]byte(s)), Invalid)
		require.Equal(t, NodeID(7), id)
	}
}

func TestEnums(t *testing.T) {
	for v, s := range map[Consistency]string{1: "strong", 2: "eventual"} {
		require.Equal(t, s, v.String())
		got, err := ParseConsistency(s)
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
	for v, s := range map[Acks]string{1: "one", 2: "quorum", 3: "all"} {
		require.Equal(t, s, v.String())
		got, err := ParseAcks(s)
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
	for v, s := range map[Durability]string{1: "memory", 2: "disk"} {
		require.Equal(t, s, v.String())
		got, err := ParseDurability(s)
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
	for _, s := range []string{"", "Strong", "strong ", "quorum,all", "0", "1"} {
		_, err := ParseConsistency(s)
		require.ErrorIs(t, err, Invalid, "%q", s)
		_, err = ParseAcks(s)
		require.ErrorIs(t, err, Invalid, "%q", s)
		_, err = ParseDurability(s)
		require.ErrorIs(t, err, Invalid, "%q", s)
	}
	_, err := ParseAcks("some")
	require.EqualError(t, err, `invalid: acks "some": use one of one, quorum, all`)
	require.Empty(t, Consistency(0).String())
	require.Empty(t, Acks(9).String())
}

func TestPoolSpec(t *testing.T) {
	good := PoolSpec{Consistency: Strong}.WithDefaults()
	require.Equal(t, PoolSpec{Consistency: Strong, Replicas: 3, Acks: AcksQuorum, Durability: Disk, MaxValue: MaxValue}, good)
	require.NoError(t, good.Validate())
	require.Equal(t, good, good.WithDefaults())
	for name, spoil := range map[string]func(s *PoolSpec){
		"eventual":      func(s *PoolSpec) { s.Consistency = Eventual },
		"consistency":   func(s *PoolSpec) { s.Consistency = 0 },
		"no replicas":   func(s *PoolSpec) { s.Replicas = 0 },
		"replicas":      func(s *PoolSpec) { s.Replicas = MaxReplicas + 1 },
		"quota":         func(s *PoolSpec) { s.Quota = -1 },
		"no max value":  func(s *PoolSpec) { s.MaxValue = 0 },
		"max value":     func(s *PoolSpec) { s.MaxValue = MaxValue + 1 },
		"memory":        func(s *PoolSpec) { s.Durability = Memory },
		"no durability": func(s *PoolSpec) { s.Durability = 0 },
		"no acks":       func(s *PoolSpec) { s.Acks = 0 },
		"acks":          func(s *PoolSpec) { s.Acks = 4 },
	} {
		s := good
		spoil(&s)
		require.ErrorIs(t, s.Validate(), Invalid, name)
	}
	eventual := good
	eventual.Consistency = Eventual
	require.ErrorContains(t, eventual.Validate(), "not in this release")
}

func TestLimits(t *testing.T) {
	require.ErrorIs(t, CheckKey(nil), Invalid)
	require.NoError(t, CheckKey([]byte{0}))
	require.NoError(t, CheckKey(make([]byte, MaxKey)))
	err := CheckKey(make([]byte, MaxKey+1))
	require.ErrorIs(t, err, Invalid)
	require.ErrorContains(t, err, "16385")
	require.ErrorContains(t, err, "16384")

	spec := PoolSpec{MaxValue: 100}
	require.NoError(t, spec.CheckValue(0))
	require.NoError(t, spec.CheckValue(100))
	err = spec.CheckValue(101)
	require.ErrorIs(t, err, TooLarge)
	require.EqualError(t, err, "too large: value of 101 bytes: this pool takes at most 100")
	e := AsError(err)
	require.Equal(t, []int64{101, 100}, []int64{e.Used, e.Limit})
}

func TestPoolNames(t *testing.T) {
	for _, s := range []string{"a", "A.b_c-9", "9", ".", "_-", strings.Repeat("x", MaxPoolName)} {
		require.NoError(t, CheckPoolName(s), "%q", s)
	}
	for _, s := range []string{"", "-a", "a b", "a/b", "ä", "a\x00", "a\n", strings.Repeat("x", MaxPoolName+1)} {
		require.ErrorIs(t, CheckPoolName(s), Invalid, "%q", s)
	}
}

func TestDefaultTimings(t *testing.T) {
	d := DefaultTimings()
	require.Equal(t, time.Second, d.Heartbeat)
	require.Equal(t, d.Heartbeat/2, d.Lease)
}
