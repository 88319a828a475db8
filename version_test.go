package sundog

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestClock(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	c := ClockAt(at.Add(999 * time.Microsecond))
	require.True(t, at.Equal(c.Time()), "whole milliseconds")
	require.Equal(t, Clock(1_700_000_000_123<<16), c)
	require.Greater(t, ClockAt(at.Add(time.Millisecond)), c+math.MaxUint16)
}

func drawVersion(t *rapid.T, label string) Version {
	return Version{Clock: Clock(rapid.Uint64().Draw(t, label+" clock")), Node: NodeID(rapid.Uint64().Draw(t, label+" node"))}
}

func TestVersionOrder(t *testing.T) {
	v := func(c Clock, n NodeID) Version { return Version{c, n} }
	rising := []Version{v(0, 0), v(0, 1), v(0, math.MaxUint64), v(1, 0), v(1, 7), v(1<<16, 0), v(math.MaxUint64, 0), v(math.MaxUint64, 1)}
	for i, a := range rising {
		for j, b := range rising {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			require.Equal(t, want, a.Compare(b), "%v, %v", a, b)
		}
	}
	require.True(t, Version{}.IsZero())
	for _, r := range rising[1:] {
		require.False(t, r.IsZero())
	}
}

func TestVersionAfter(t *testing.T) {
	prev := Version{Clock: 100, Node: 9}
	require.Equal(t, Version{Clock: 101}, prev.After(50), "a clock that is behind")
	require.Equal(t, Version{Clock: 101}, prev.After(100), "the same reading")
	require.Equal(t, Version{Clock: 500}, prev.After(500))
	rapid.Check(t, func(t *rapid.T) {
		v := drawVersion(t, "v")
		v.Clock = min(v.Clock, math.MaxUint64-1)
		now := Clock(rapid.Uint64().Draw(t, "now"))
		w := v.After(now)
		require.Equal(t, 1, w.Compare(v))
		require.GreaterOrEqual(t, w.Clock, now)
		require.Zero(t, w.Node)
	})
}

func TestVersionRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawVersion(t, "v"), drawVersion(t, "w")
		if rapid.Bool().Draw(t, "strong") {
			v.Node, w.Node = 0, 0
		}
		parsed, err := ParseVersion(v.String())
		require.NoError(t, err)
		require.Equal(t, v, parsed)

		b := v.Append([]byte("before"))
		require.Len(t, b, len("before")+VersionSize)
		require.Equal(t, v, DecodeVersion(b[len("before"):]))

		text, err := json.Marshal(v)
		require.NoError(t, err)
		var back Version
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, v, back)

		order := []string{v.String(), w.String()}
		slices.Sort(order)
		require.Equal(t, v.Compare(w) <= 0, order[0] == v.String(), "strings sort as versions")
	})
	require.Equal(t, "00000000000000ff", Version{Clock: 255}.String())
	require.Equal(t, "00000000000000ff-0000000000000001", Version{Clock: 255, Node: 1}.String())
	require.Equal(t, []byte{2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0}, Version{0x0102, 0x0304}.Append(nil), "little-endian, clock first")
}

func TestParseVersionRefuses(t *testing.T) {
	for _, s := range []string{
		"", "0", "-", "00000000000000ff-", "00000000000000ff-1", "00000000000000ff-0000000000000000",
		"00000000000000ff-0000000000000001-", "00000000000000fg", "0x000000000000ff", "+0000000000000ff",
		" 00000000000000ff", "000000000000000ff", "-0000000000000001", "0000_0000_0000_f",
	} {
		_, err := ParseVersion(s)
		require.ErrorIs(t, err, Invalid, "%q", s)
		v := Version{Clock: 3}
		require.ErrorIs(t, v.UnmarshalText([]byte(s)), Invalid)
		require.Equal(t, Version{Clock: 3}, v, "a refused text changes nothing")
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"", "00000000000000ff", "00000000000000ff-0000000000000001", "FFFFFFFFFFFFFFFF", "00000000000000ff-", "0000_0000_0000_f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			require.ErrorIs(t, err, Invalid)
			return
		}
		again, err := ParseVersion(v.String())
		require.NoError(t, err)
		require.Equal(t, v, again)
		require.Len(t, v.String(), len(s), "only the case of digits may differ")
	})
}
