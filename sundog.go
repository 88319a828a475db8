package sundog

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
)

// NodeID names one server process for the life of its data directory. It is
// random, never zero, and independent of any address. Zero means "no node".
type NodeID uint64

// NewNodeID draws a random id from the operating system.
func NewNodeID() NodeID {
	var b [8]byte
	for {
		rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return NodeID(id)
		}
	}
}

// String returns the id as 16 hexadecimal digits.
func (n NodeID) String() string { return fmt.Sprintf("%016x", uint64(n)) }

// MarshalText makes a node id appear in JSON as its 16 hexadecimal digits.
func (n NodeID) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what [NodeID.MarshalText] wrote.
func (n *NodeID) UnmarshalText(text []byte) error {
	id, err := ParseNodeID(string(text))
	if err == nil {
		*n = id
	}
	return err
}

// ParseNodeID reads the form that [NodeID.String] prints. The error is of kind
// [Invalid].
func ParseNodeID(s string) (NodeID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || v == 0 {
		return 0, Errorf(Invalid, "node id %q: want 16 hexadecimal digits, not all zero", s)
	}
	return NodeID(v), nil
}

// Epoch numbers the committed versions of the cluster map. It rises with every
// change; zero means "no map yet".
type Epoch uint64

// PoolID names a pool for ever: a deleted pool's id is never given again, so an
// old message can never reach a newer pool of the same name.
type PoolID uint64

// Partition numbers one of the P equal parts of the slot space, from 0 to P-1.
// P is a power of two fixed when the cluster is founded ([ValidPartitions]).
type Partition uint16

// Limits that hold in every pool.
const (
	// MaxKey is the longest key in bytes; the shortest is one byte.
	MaxKey = 16 << 10
	// MaxValue is the largest value in bytes that a pool may allow in this
	// release, and the default of a pool. Empty values are legal.
	MaxValue = 1 << 20
	// MaxPoolName is the longest pool name in bytes.
	MaxPoolName = 128
	// MaxReplicas is the largest replication factor.
	MaxReplicas = 9
)

// ValidPartitions reports whether p may be a cluster's number of partitions: a
// power of two from 1 to [Slots].
func ValidPartitions(p int) bool { return p >= 1 && p <= Slots && p&(p-1) == 0 }

// Consistency is the guarantee a pool gives.
type Consistency uint8

// The consistencies. Numbers are stored and append-only.
const (
	// Strong pools are linearizable: one Raft group a partition.
	Strong Consistency = 1
	// Eventual pools are always writable and converge by version.
	Eventual Consistency = 2
)

// String returns "strong" or "eventual".
func (c Consistency) String() string { return enumName(consistencies, c) }

// ParseConsistency reads what [Consistency.String] prints; kind [Invalid] otherwise.
func ParseConsistency(s string) (Consistency, error) {
	return parseEnum("consistency", consistencies, s)
}

// Acks says how many replicas hold a write of an eventual pool before it is
// acknowledged. Strong pools always wait for a synced majority.
type Acks uint8

// The acknowledgement levels. Numbers are stored and append-only.
const (
	AcksOne    Acks = 1 // the replica that took the write
	AcksQuorum Acks = 2 // a majority of the configured replicas
	AcksAll    Acks = 3 // every configured replica
)

// String returns "one", "quorum" or "all".
func (a Acks) String() string { return enumName(ackses, a) }

// ParseAcks reads what [Acks.String] prints; kind [Invalid] otherwise.
func ParseAcks(s string) (Acks, error) { return parseEnum("acks", ackses, s) }

// Durability says whether a replica keeps its data over a restart.
type Durability uint8

// The durabilities. Numbers are stored and append-only.
const (
	Memory Durability = 1 // lost with the process (eventual pools only)
	Disk   Durability = 2 // kept; in a strong pool synced before the acknowledgement
)

// String returns "memory" or "disk".
func (d Durability) String() string { return enumName(durabilities, d) }

// ParseDurability reads what [Durability.String] prints; kind [Invalid] otherwise.
func ParseDurability(s string) (Durability, error) {
	return parseEnum("durability", durabilities, s)
}

// PoolSpec is what an operator chooses for a pool.
type PoolSpec struct {
	Consistency Consistency
	Replicas    int        // copies of every key, 1 to MaxReplicas
	Quota       int64      // bytes of keys and values, one copy; 0 is no quota
	Acks        Acks       // eventual pools
	Durability  Durability // strong pools: always Disk
	MaxValue    int64      // bytes; 1 to [MaxValue]
}

// WithDefaults fills what is zero: 3 replicas, quorum, disk, [MaxValue].
func (s PoolSpec) WithDefaults() PoolSpec {
	if s.Replicas == 0 {
		s.Replicas = 3
	}
	if s.Acks == 0 {
		s.Acks = AcksQuorum
	}
	if s.Durability == 0 {
		s.Durability = Disk
	}
	if s.MaxValue == 0 {
		s.MaxValue = MaxValue
	}
	return s
}

// Validate says what is wrong with the spec and what to write instead; the
// error is of kind [Invalid].
func (s PoolSpec) Validate() error {
	switch {
	case s.Consistency == Eventual:
		return Errorf(Invalid, "consistency eventual: not in this release; use strong")
	case s.Consistency != Strong:
		return Errorf(Invalid, "consistency is not set: use strong")
	case s.Replicas < 1 || s.Replicas > MaxReplicas:
		return Errorf(Invalid, "replicas %d: use 1 to %d", s.Replicas, MaxReplicas)
	case s.Quota < 0:
		return Errorf(Invalid, "quota %d bytes: use 0 (none) or more", s.Quota)
	case s.MaxValue < 1 || s.MaxValue > MaxValue:
		return Errorf(Invalid, "max value %d bytes: use 1 to %d", s.MaxValue, MaxValue)
	case s.Durability == Memory:
		return Errorf(Invalid, "durability memory: a strong pool is always synced to disk; leave --durability out")
	case s.Durability != Disk:
		return Errorf(Invalid, "durability is not set: use disk")
	case enumName(ackses, s.Acks) == "":
		return Errorf(Invalid, "acks is not set: use one, quorum or all")
	}
	return nil
}

// CheckPoolName says why a name cannot be a pool's: 1 to [MaxPoolName] bytes of
// letters, digits, '.', '_', '-', not beginning with '-'. Kind [Invalid].
func CheckPoolName(name string) error {
	if name == "" || len(name) > MaxPoolName || name[0] == '-' {
		return Errorf(Invalid, "pool name %.200q: use 1 to %d letters, digits, '.', '_' or '-', not beginning with '-'", name, MaxPoolName)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return Errorf(Invalid, "pool name %q: %q is not a letter, digit, '.', '_' or '-'", name, c)
		}
	}
	return nil
}

// CheckKey says why a key is not legal (kind [Invalid]): keys are 1 to [MaxKey]
// bytes of anything.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return Errorf(Invalid, "empty key: a key is 1 to %d bytes", MaxKey)
	}
	if len(key) > MaxKey {
		return Errorf(Invalid, "key of %d bytes: a key is 1 to %d bytes", len(key), MaxKey)
	}
	return nil
}

// CheckValue says why a value does not fit the pool (kind [TooLarge], both
// sizes named in the message and in Used and Limit).
func (s PoolSpec) CheckValue(n int) error {
	if int64(n) <= s.MaxValue {
		return nil
	}
	e := Errorf(TooLarge, "value of %d bytes: this pool takes at most %d", n, s.MaxValue)
	e.Used, e.Limit = int64(n), s.MaxValue
	return e
}

// Timings are the clocks of consensus, fixed for the cluster when it is founded.
type Timings struct {
	Heartbeat time.Duration // HeartbeatTimeout and ElectionTimeout of every group
	Lease     time.Duration // Δ of DESIGN section 6: Heartbeat / 2
}

// DefaultTimings is 1 s and 500 ms.
func DefaultTimings() Timings {
	return Timings{Heartbeat: time.Second, Lease: 500 * time.Millisecond}
}

// enum pairs a stored number with the word an operator writes for it.
type enum[T ~uint8] struct {
	value T
	name  string
}

var (
	consistencies = []enum[Consistency]{{Strong, "strong"}, {Eventual, "eventual"}}
	ackses        = []enum[Acks]{{AcksOne, "one"}, {AcksQuorum, "quorum"}, {AcksAll, "all"}}
	durabilities  = []enum[Durability]{{Memory, "memory"}, {Disk, "disk"}}
)

func enumName[T ~uint8](all []enum[T], v T) string {
	for _, e := range all {
		if e.value == v {
			return e.name
		}
	}
	return ""
}

func parseEnum[T ~uint8](what string, all []enum[T], s string) (T, error) {
	names := ""
	for i, e := range all {
		if e.name == s {
			return e.value, nil
		}
		if i > 0 {
			names += ", "
		}
		names += e.name
	}
	return 0, Errorf(Invalid, "%s %q: use one of %s", what, s, names)
}
