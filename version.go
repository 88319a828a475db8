package sundog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Clock is a hybrid logical clock reading: 48 bits of Unix milliseconds above
// 16 bits of counter (Kulkarni et al., "Logical Physical Clocks", 2014). Its
// integer order is its time order; adding one is the next event.
type Clock uint64

// ClockAt is the first reading of t's millisecond.
func ClockAt(t time.Time) Clock { return Clock(uint64(t.UnixMilli()) << 16) }

// Time returns the physical part, in milliseconds.
func (c Clock) Time() time.Time { return time.UnixMilli(int64(c >> 16)) }

// Version orders all values a key ever has, in both consistencies: by clock,
// then by node. Node is zero in strong pools, where Apply gives each mutation a
// clock above every earlier one of its partition. The zero Version is below
// every real one and means "absent".
type Version struct {
	Clock Clock
	Node  NodeID
}

// VersionSize is the encoded size in bytes.
const VersionSize = 16

// Compare returns -1, 0 or +1.
func (v Version) Compare(w Version) int {
	if c := cmp.Compare(v.Clock, w.Clock); c != 0 {
		return c
	}
	return cmp.Compare(v.Node, w.Node)
}

// IsZero reports whether v is the version of nothing.
func (v Version) IsZero() bool { return v == Version{} }

// After returns the version of an event that is seen at now and is above v: the
// rule by which Apply stamps. The node is kept out (strong pools).
func (v Version) After(now Clock) Version {
	return Version{Clock: max(now, v.Clock+1)}
}

// String returns 16 hexadecimal digits of clock, followed by '-' and the node
// when there is one. It sorts as versions do.
func (v Version) String() string {
	if v.Node == 0 {
		return fmt.Sprintf("%016x", uint64(v.Clock))
	}
	return fmt.Sprintf("%016x-%s", uint64(v.Clock), v.Node)
}

// ParseVersion reads what [Version.String] prints; kind [Invalid] otherwise.
func ParseVersion(s string) (Version, error) {
	clock, node, hasNode := strings.Cut(s, "-")
	c, err := strconv.ParseUint(clock, 16, 64)
	if err != nil || len(clock) != 16 {
		return Version{}, Errorf(Invalid, "version %q: want the 16 hexadecimal digits that get and put print", s)
	}
	v := Version{Clock: Clock(c)}
	if hasNode {
		if v.Node, err = ParseNodeID(node); err != nil {
			return Version{}, Errorf(Invalid, "version %q: %v", s, err)
		}
	}
	return v, nil
}

// MarshalText makes a version appear in JSON as its String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what [Version.MarshalText] wrote.
func (v *Version) UnmarshalText(text []byte) error {
	w, err := ParseVersion(string(text))
	if err == nil {
		*v = w
	}
	return err
}

// Append appends the VersionSize bytes of v, little-endian, clock first.
func (v Version) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Clock))
	return binary.LittleEndian.AppendUint64(b, uint64(v.Node))
}

// DecodeVersion reads the first VersionSize bytes of b, which must be there.
func DecodeVersion(b []byte) Version {
	return Version{
		Clock: Clock(binary.LittleEndian.Uint64(b)),
		Node:  NodeID(binary.LittleEndian.Uint64(b[8:])),
	}
}
