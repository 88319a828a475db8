package table

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// bucket is one bucket of a table and its address.
type bucket struct {
	b  []byte // bucketSize bytes
	at address
}

func (k bucket) meta() uint64      { return loadWord(k.b, offMeta) }
func (k bucket) setMeta(m uint64)  { storeWord(k.b, offMeta, m) }
func (k bucket) words() int        { return int(k.meta() & metaWords) }
func (k bucket) kind() int         { return int(k.meta() >> kindShift & kindMask) }
func (k bucket) spilled() int      { return int(k.meta() >> spillShift & spillMask) }
func (k bucket) next() address     { return address(loadWord(k.b, offNext)) }
func (k bucket) word(i int) word   { return word(loadWord(k.b, wordAt(i))) }
func (k bucket) setNext(a address) { storeWord(k.b, offNext, uint64(a)) }

func wordAt(i int) int { return bucketHeader + 8*i }

// raiseTerm notes that an entry of this term touched the bucket. The writer
// does so before the change can be seen, so that who reads the change and then
// the term reads at least this one.
func (k bucket) raiseTerm(term uint64) {
	if loadWord(k.b, offTerm) < term {
		storeWord(k.b, offTerm, term)
	}
}

func (k bucket) addSpilled(n int) { k.setMeta(k.meta() + uint64(int64(n))<<spillShift) }

// setWord stores the index word and keeps the number of words in use right.
// The checksum is wrong until seal; only proofs of absence look at it.
func (k bucket) setWord(i int, w word) {
	m := k.meta()
	n := int(m & metaWords)
	storeWord(k.b, wordAt(i), uint64(w))
	if i >= n { // only now: what lay there before may have been part of a cell
		k.setMeta(m&^metaWords | uint64(i+1))
	}
	if w == 0 && i == n-1 {
		for n > 0 && k.word(n-1) == 0 {
			n--
		}
		k.setMeta(m&^metaWords | uint64(n))
	}
}

// seal makes the checksum right again.
func (k bucket) seal() {
	storeWord(k.b, offSum, bucketSum(k.b, k.words()))
}

// bucketSum is over the header but the sum itself, and the words in use.
// Inline items prove themselves.
func bucketSum(b []byte, words int) uint64 { return xxhash.Sum64(b[offIncarnation:wordAt(words)]) }

// initBucket makes k an empty bucket of its group.
func initBucket(k bucket, incarnation, epoch, term uint64, group uint32, kind int) {
	clear(k.b)
	storeWord(k.b, offIncarnation, incarnation)
	storeWord(k.b, offEpoch, epoch)
	storeWord(k.b, offTerm, term)
	k.setMeta(uint64(group)<<groupShift | uint64(kind)<<kindShift)
	k.seal()
}

// cell is the slot of the entry of an inline word within the bucket's bytes,
// nil where the word is no legal one.
func cell(b []byte, w word) []byte {
	off, n := int(w.at())*granule, int(w.class())*granule
	if off < bucketHeader || off > bucketSize || n > bucketSize-off || n == 0 {
		return nil
	}
	return b[off : off+n : off+n]
}

// image is a private copy of a bucket's header and words, verified against its
// checksum: what it says was so at one instant while it was copied, in the
// sense that proof of absence needs (docs/table-format.md, "Believing a miss").
type image struct {
	b [bucketSize]byte
	n int
}

// take copies header and words of the bucket at b and reports whether the
// checksum holds.
//
// Ordering: the copy is a plain one and may meet the writer; any mix of two
// states fails the sum, so no order among its loads is needed.
func (im *image) take(b []byte) bool {
	if len(b) < bucketSize {
		return false
	}
	n := int(loadWord(b, offMeta) & metaWords)
	if n > maxWords {
		return false
	}
	copy(im.b[:wordAt(n)], b)
	im.n = n
	if int(loadWord(im.b[:], offMeta)&metaWords) != n {
		return false
	}
	return mutantChecksumOff || loadWord(im.b[:], offSum) == bucketSum(im.b[:], n)
}

func (im *image) word(i int) word     { return word(loadWord(im.b[:], wordAt(i))) }
func (im *image) next() address       { return address(loadWord(im.b[:], offNext)) }
func (im *image) spilled() int        { return int(loadWord(im.b[:], offMeta) >> spillShift & spillMask) }
func (im *image) incarnation() uint64 { return loadWord(im.b[:], offIncarnation) }

// is reports whether the image is the bucket that a reader of that geometry
// epoch meant to read, and current for it: not given up, and not split or
// merged since.
func (im *image) is(incarnation, epoch uint64, group uint32, kind int) bool {
	m := loadWord(im.b[:], offMeta)
	return im.incarnation() == incarnation && m&metaMoved == 0 &&
		uint32(m>>groupShift) == group && int(m>>kindShift&kindMask) == kind &&
		loadWord(im.b[:], offEpoch) <= epoch
}

// room is the free space of a bucket as the writer plans with it.
type room struct {
	used  [2]uint64 // index words in use, one bit each
	words int       // words in use, holes included
	cells uint64    // granules taken by inline entries, one bit each
}

func roomOf(k bucket) room {
	r := room{words: k.words()}
	for i := range r.words {
		if w := k.word(i); w != 0 {
			r.used[i>>6] |= 1 << (i & 63)
			if w.inline() {
				r.cells |= cellBits(int(w.at()), int(w.class()))
			}
		}
	}
	return r
}

func cellBits(off, n int) uint64 { return (1<<n - 1) << off }

// wordGranule is the granule that word i lies in.
func wordGranule(i int) int { return wordAt(i) / granule }

// wordSlot returns the first free place for an index word.
func (r *room) wordSlot() (i int, ok bool) {
	if i = bits.TrailingZeros64(^r.used[0]); i == 64 {
		i += bits.TrailingZeros64(^r.used[1])
	}
	if i >= maxWords || i >= r.words && r.cells>>wordGranule(i)&1 != 0 {
		return 0, false
	}
	return i, true
}

// cellSlot returns the granule of a free cell of n granules that leaves the
// first words words their place: the last one that fits, so that words and
// cells grow towards each other.
func (r *room) cellSlot(n, words int) (off int, ok bool) {
	first := bucketHeader / granule
	if words > 0 {
		first = wordGranule(words-1) + 1
	}
	free := ^r.cells &^ (1<<first - 1)
	for have := 1; have < n; { // bit k of free: a run of have free granules begins at k
		step := min(have, n-have)
		free &= free >> step
		have += step
	}
	if free == 0 {
		return 0, false
	}
	return 63 - bits.LeadingZeros64(free), true
}

// pairSlot returns a place for an inline entry of n granules and its word.
func (r *room) pairSlot(n int) (i, off int, ok bool) {
	if i, ok = r.wordSlot(); !ok {
		return 0, 0, false
	}
	off, ok = r.cellSlot(n, max(r.words, i+1))
	return i, off, ok
}

func (r *room) take(i, off, n int) {
	r.used[i>>6] |= 1 << (i & 63)
	r.words = max(r.words, i+1)
	if n > 0 {
		r.cells |= cellBits(off, n)
	}
}

// free is the bytes not taken by words and cells.
func (r *room) free() int {
	return bucketSize - wordAt(r.words) - granule*bits.OnesCount64(r.cells)
}
