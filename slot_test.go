package sundog

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCRC16 uses the check value of the algorithm's definition, which the Redis
// Cluster specification's appendix A gives too ("123456789" → 0x31C3).
func TestCRC16(t *testing.T) {
	require.Equal(t, uint16(0x31C3), crc16([]byte("123456789")))
	require.Equal(t, uint16(0), crc16(nil))
}

// crc16Bitwise is the algorithm without a table.
func crc16Bitwise(b []byte) (crc uint16) {
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

func FuzzCRC16(f *testing.F) {
	f.Add([]byte("123456789"))
	f.Add([]byte{0xff, 0, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		if want := crc16Bitwise(b); crc16(b) != want {
			t.Fatalf("crc16(%x) = %04x, want %04x", b, crc16(b), want)
		}
	})
}

// TestSlotOf has the slots that Redis Cluster's CLUSTER KEYSLOT answers: for foo
// and somekey as its documentation prints them.
func TestSlotOf(t *testing.T) {
	for key, slot := range map[string]Slot{
		"foo":             12182,
		"bar":             5061,
		"hello":           866,
		"somekey":         11058,
		"foo{hash_tag}":   2515,
		"bar{hash_tag}":   2515,
		"hash_tag":        2515,
		"123456789":       0x31C3,
		"":                0,
		"{user1000}.here": 3443, "user1000": 3443,
	} {
		require.Equal(t, slot, SlotOf([]byte(key)), "%q", key)
	}
}

// TestHashtags has the examples of the specification, "Hash tags": which part of
// the key is hashed.
func TestHashtags(t *testing.T) {
	for key, hashed := range map[string]string{
		"{user1000}.following": "user1000",
		"{user1000}.followers": "user1000",
		"foo{}{bar}":           "foo{}{bar}", // the first braces hold nothing: the whole key
		"foo{{bar}}zap":        "{bar",       // from the first { to the first } after it
		"foo{bar}{zap}":        "bar",        // only the first
		"foo{bar":              "foo{bar",    // never closed
		"foo}bar{":             "foo}bar{",
		"}{a}":                 "a", // a } before the { counts for nothing
		"{}":                   "{}",
		"{a}":                  "a",
		"{{}":                  "{",
		"\x00{\xff}\x00":       "\xff",
	} {
		require.Equal(t, Slot(crc16([]byte(hashed))%Slots), SlotOf([]byte(key)), "%q", key)
	}
}

func TestPartitionOfASlot(t *testing.T) {
	for p := 1; p <= Slots; p *= 2 {
		counts := make([]int, p)
		last := Partition(0)
		for s := range Slots {
			part := Slot(s).Partition(p)
			require.GreaterOrEqual(t, part, last)
			counts[part]++
			last = part
			if p < Slots {
				require.Equal(t, part, Slot(s).Partition(2*p)/2, "doubling splits in two neighbours")
			}
		}
		for _, n := range counts {
			require.Equal(t, Slots/p, n)
		}
	}
	require.Equal(t, Partition(23), PartitionOf([]byte("foo"), 32)) // 12182 × 32 >> 14
	require.Equal(t, PartitionOf([]byte("a{foo}"), 64), PartitionOf([]byte("b{foo}c"), 64))
}

func TestValidPartitions(t *testing.T) {
	valid := 0
	for p := -4; p <= 2*Slots; p++ {
		if ValidPartitions(p) {
			valid++
			require.Equal(t, 1, bits.OnesCount(uint(p)))
		}
	}
	require.Equal(t, 15, valid, "1, 2, 4 ... 16384")
	require.False(t, ValidPartitions(0))
	require.False(t, ValidPartitions(-2))
	require.False(t, ValidPartitions(2*Slots))
}
