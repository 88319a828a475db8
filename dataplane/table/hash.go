package table

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// keyHash is xxHash64 of the key, seed 0. It places the key, tags its index
// word and stands for the key in the item's header sum.
func keyHash(key []byte) uint64 { return xxhash.Sum64(key) }

// placeHash is the 32-bit hash that places a key by its first or second choice:
// bits 0-29 name the group, bits 30 and 31 the main bucket in it.
func placeHash(h uint64, choice int) uint32 {
	if choice == 0 {
		return uint32(h)
	}
	return uint32((h ^ h>>32) * 0x9e3779b97f4a7c15 >> 32)
}

// groupOf is linear hashing (Litwin, 1980): with 2^d <= groups < 2^(d+1), the
// low d+1 bits where that group exists already, else the low d bits. Growing
// from n to n+1 groups thus moves keys only out of group n - 2^d into group n.
func groupOf(place, groups uint32) uint32 {
	low := uint32(1) << (bits.Len32(groups) - 1)
	g := place & (maxGroups - 1) & (low<<1 - 1)
	if g >= groups {
		g &= low - 1
	}
	return g
}

// buddyOf is the group that group n is split from when the table grows from n
// to n+1 groups, and merged into when it shrinks back.
func buddyOf(n uint32) uint32 { return n - 1<<(bits.Len32(n)-1) }

// sideOf is the kind of the main bucket within the group.
func sideOf(place uint32) int { return int(place >> placeBits) }

// candidate is one of the two buckets that a key may lie in.
type candidate struct {
	group uint32
	side  int
	want  word
}

// candidatesOf returns the key's two candidates. They may be the same bucket;
// a key placed there has choice 0.
func candidatesOf(h uint64, groups uint32) (c [2]candidate) {
	for choice := range c {
		place := placeHash(h, choice)
		c[choice] = candidate{group: groupOf(place, groups), side: sideOf(place), want: wordFor(h, choice)}
	}
	return c
}
