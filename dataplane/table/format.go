package table

import (
	"sync/atomic"
	"unsafe"
)

// Everything below is written down in docs/table-format.md; a change of any of
// it is a change of formatVersion.
const (
	formatVersion = 1
	tableMagic    = 0x54445553 // "SUDT", little-endian

	granule = 16 // unit of addresses and of cells

	bucketSize   = 1024
	bucketHeader = 48
	maxWords     = (bucketSize - bucketHeader) / 8
	groupSize    = (mains + 1) * bucketSize // main buckets, then their shared overflow
	mains        = 4

	// inlineLimit is the largest key and value, together, that lie in a bucket.
	inlineLimit = 192

	// A segment is a run of groups. The first is short so that an empty table
	// is small; all others hold segmentGroups.
	segmentGroups = 16
	firstGroups   = 3

	maxGroups = 1 << placeBits
)

// Offsets in a bucket's header.
const (
	offSum         = 0
	offIncarnation = 8
	offEpoch       = 16
	offTerm        = 24
	offMeta        = 32
	offNext        = 40
)

// Fields of a bucket's meta word.
const (
	metaWords   = 0xff // bits 0-7: index words in use, holes included
	kindShift   = 8    // bits 8-10: which bucket of its group; 0-3 main
	kindMask    = 7
	metaMoved   = 1 << 11
	spillShift  = 16 // bits 16-31: entries of this main bucket that lie in overflow
	spillMask   = 0xffff
	groupShift  = 32        // bits 32-63: the group's number
	kindShared  = mains     // overflow of the group's main buckets
	kindExtra   = mains + 1 // further overflow, chained behind the shared one
	bucketKinds = mains + 1 // buckets that every group has
)

// Offsets in the table's header.
const (
	headMagic       = 0
	headIncarnation = 8
	headActive      = 16
	headEpoch       = 24
	headGroups      = 32
	headDirectory   = 40
	headReserved    = 48
	headSum         = 56
	headSize        = 64
)

// address names registered memory of one arena: chunk number times 2^20 plus
// the offset in granules. Chunk numbers begin at 1, so 0 names nothing. It has
// no pointer in it and means the same in every process.
type address uint64

const (
	addressBits = 40
	offsetBits  = 20
	maxChunk    = 1 << offsetBits * granule // bytes
)

func makeAddress(chunk uint32, offset int) address {
	return address(uint64(chunk)<<offsetBits | uint64(offset/granule))
}

func (a address) chunk() uint32 { return uint32(a >> offsetBits) }

func (a address) offset() int { return int(a&(1<<offsetBits-1)) * granule }

// plus is the address n granules on, in the same chunk.
func (a address) plus(n int) address { return a + address(n) }

// word is an index word: 0 is empty.
//
//	bits 0-39   address of the item, or the granule of the bucket it lies at
//	bits 40-47  size class of its slot, or the granules of its cell
//	bit  48     it lies inline
//	bit  49     which of the key's two hashes placed it here
//	bits 50-63  tag: the top bits of the key's hash
type word uint64

const (
	wordInline  = 1 << 48
	choiceShift = 49
	tagShift    = 50
)

func makeWord(h uint64, choice int, at address, class uint8, inline bool) word {
	w := wordFor(h, choice) | word(at) | word(class)<<addressBits
	if inline {
		w |= wordInline
	}
	return w
}

// wordFor is the part of the index word that a lookup can know.
func wordFor(h uint64, choice int) word {
	return word(h>>tagShift)<<tagShift | word(choice)<<choiceShift
}

func (w word) matches(want word) bool { return w != 0 && (w^want)>>choiceShift == 0 }
func (w word) inline() bool           { return w&wordInline != 0 }
func (w word) choice() int            { return int(w >> choiceShift & 1) }
func (w word) at() address            { return address(w & (1<<addressBits - 1)) }
func (w word) class() uint8           { return uint8(w >> addressBits) }

// loadWord reads the aligned 8 bytes of b at off. Words of shared memory are
// read and written only by loadWord and storeWord: an aligned 8-byte access
// never tears, and Go's atomics are sequentially consistent, so what was
// written before a storeWord is seen by whoever loads its value. b is 8-byte
// aligned and the host little-endian ([New] checks the latter).
func loadWord(b []byte, off int) uint64 {
	_ = b[off+7]
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[off])))
}

func storeWord(b []byte, off int, v uint64) {
	_ = b[off+7]
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[off])), v)
}

// nextMatch is the index of the first word in [from, n) of the bucket at b that
// a lookup for want must follow, or n; n is at most maxWords. It is the loop that
// a lookup spends its time in, so it compares once a word: want is zero below the
// bits that are compared.
func nextMatch(b []byte, from, n int, want word) int {
	words := b[bucketHeader:bucketSize:bucketSize]
	first := unsafe.Pointer(&words[0]) // n words of 8 bytes lie within words
	for i := from; i < n; i++ {
		w := word(atomic.LoadUint64((*uint64)(unsafe.Add(first, 8*i))))
		if w^want < 1<<choiceShift && w != 0 {
			return i
		}
	}
	return n
}
