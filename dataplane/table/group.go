package table

import "math/bits"

// snapshot is a private copy of a group's buckets, made while the writer holds
// still: index words and inline items as they are, items out of line by name.
type snapshot struct {
	b  []byte // whole buckets, one after the other
	at []address
}

// take copies all buckets of a group. The caller holds mu.
func (s *snapshot) take(t *Table, group uint32) {
	s.b, s.at = s.b[:0], s.at[:0]
	for _, k := range t.buckets(group) {
		s.b = append(s.b, k.b...)
		s.at = append(s.at, k.at)
	}
}

func (s *snapshot) bucket(i int) bucket { return bucket{s.b[i*bucketSize:][:bucketSize], s.at[i]} }

// entries calls fn with every entry until it returns false.
func (s *snapshot) entries(fn func(k bucket, w word) bool) {
	for j := range s.at {
		k := s.bucket(j)
		for i := range min(k.words(), maxWords) {
			if w := k.word(i); w != 0 && !fn(k, w) {
				return
			}
		}
	}
}

// Positions order a table's entries for Scan: by the bit-reversed hash that
// placed them, then by tag. Under linear hashing a group owns the hashes of
// certain low bits, reversed an interval, whatever the number of groups; so a
// position means the same after any growth or shrinking, and an entry keeps its
// position for life, since it keeps the choice that placed it.
const (
	placeBits    = 30
	tagBits      = 64 - tagShift
	positionBits = placeBits + tagBits
	positionEnd  = uint64(1) << positionBits
)

func positionOf(place uint32, w word) uint64 {
	rev := uint64(bits.Reverse32(place << (32 - placeBits))) // bits 0-29, reversed
	return rev<<tagBits | uint64(w>>tagShift)
}

// groupAt returns the group that owns a position, and where the next begins.
func groupAt(position uint64, groups uint32) (group uint32, end uint64) {
	rev := uint32(position >> tagBits)
	group = groupOf(bits.Reverse32(rev)>>(32-placeBits), groups)
	depth := bits.Len32(groups) - 1
	if low := uint32(1) << depth; group < groups-low || group >= low {
		depth++
	}
	width := uint(placeBits - depth)
	return group, (uint64(rev)>>width + 1) << width << tagBits
}
