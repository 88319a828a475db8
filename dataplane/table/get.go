package table

import (
	"bytes"
	"runtime"

	"github.com/sundog-kv/sundog"
)

// tries is how often a Get looks without a lock before it asks the writer to
// hold still. A try fails only when it meets the writer in the few nanoseconds
// of a change to the very bucket, so running out of them is next to never.
const tries = 64

// outcome is what one look found.
type outcome int

const (
	hit     outcome = iota
	miss            // proved
	unclear         // look again
	other           // of an item: live and sound, of another key
)

// Get returns the item of a key, its value appended to dst. It may be called
// from any goroutine, takes no lock unless it has met the writer [tries] times
// in a row, and is linearizable with the writer's operations. It panics with an
// error of kind Corrupt when the table's memory is damaged, which is a fault of
// the machine or of ours.
func (t *Table) Get(key, dst []byte) (Item, bool) {
	if sundog.CheckKey(key) != nil {
		return Item{}, false
	}
	h := keyHash(key)
	inside := t.arena.readers.enter()
	for try := range tries {
		geo := t.geo.Load()
		if geo == nil {
			exit(inside)
			return Item{}, false
		}
		if it, out := t.look(geo, key, h, dst); out != unclear {
			exit(inside)
			return it, out == hit
		}
		if try%8 == 7 {
			runtime.Gosched() // the writer may be off its processor amid a change
		}
	}
	// Leave before the lock: the writer, holding it, may wait for readers.
	exit(inside)
	return t.getLocked(key, h, dst)
}

// getLocked reads while the writer holds still, so the first look must tell.
func (t *Table) getLocked(key []byte, h uint64, dst []byte) (Item, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contended++
	geo := t.geo.Load()
	if geo == nil {
		return Item{}, false
	}
	it, out := t.look(geo, key, h, dst)
	if out == unclear {
		t.damaged()
	}
	return it, out == hit
}

// damaged ends the caller: what it read cannot be explained by a writer.
func (t *Table) damaged() {
	t.log.Error("table memory is damaged", "partition", t.partition, "incarnation", t.incarnation)
	panic(sundog.Errorf(sundog.Corrupt, "table of partition %d: memory is damaged", t.partition))
}

// look is one try: both candidates for a hit, then, where there was none, both
// again for the proof that there is none. The headers of both are loaded first,
// so that a cold cache fetches them at the same time.
func (t *Table) look(geo *geometry, key []byte, h uint64, dst []byte) (Item, outcome) {
	candidates := candidatesOf(h, geo.groups)
	first, second := mainOf(geo, candidates[0]), mainOf(geo, candidates[1])
	meta0, meta1 := first.meta(), second.meta()
	if it, ok := t.lookIn(first, meta0, geo, candidates[0], key, h, dst); ok {
		return it, hit
	}
	if it, ok := t.lookIn(second, meta1, geo, candidates[1], key, h, dst); ok {
		return it, hit
	}
	for _, c := range candidates {
		if !t.absent(geo, c, key, h) {
			return Item{}, unclear
		}
	}
	return Item{}, miss
}

// mainOf is a candidate's main bucket.
func mainOf(geo *geometry, c candidate) bucket {
	g, at := geo.group(c.group)
	return bucket{g[c.side*bucketSize:][:bucketSize], at.plus(c.side * bucketSize / granule)}
}

// sharedOf is the shared overflow of a candidate's group.
func sharedOf(geo *geometry, c candidate) bucket {
	g, at := geo.group(c.group)
	return bucket{g[kindShared*bucketSize:][:bucketSize], at.plus(kindShared * bucketSize / granule)}
}

// lookIn looks for the key in one candidate: the main bucket, whose meta word is
// given, and, where entries of it lie there, the overflow of its group.
func (t *Table) lookIn(main bucket, meta uint64, geo *geometry, c candidate, key []byte, h uint64, dst []byte) (Item, bool) {
	if it, ok := t.lookAt(main, meta, c.want, key, h, dst); ok || meta>>spillShift&spillMask == 0 {
		return it, ok
	}
	over := sharedOf(geo, c)
	for range maxChain {
		if it, ok := t.lookAt(over, over.meta(), c.want, key, h, dst); ok {
			return it, true
		}
		if over.at = over.next(); over.at == 0 {
			break
		}
		if over.b = t.arena.bytes(over.at, bucketSize); over.b == nil {
			break
		}
	}
	return Item{}, false
}

// maxChain bounds a walk along extra buckets by a reader that cannot trust what
// it reads; the writer makes no longer ones.
const maxChain = 1 << 16

// lookAt looks for the key in one bucket. A hit needs no proof of the bucket:
// the item proves itself.
//
// Ordering: the word is loaded before the item, and the writer had the item
// whole before it stored the word. The writer marks an item dead before it
// stores the word of its successor, so an item that is found live here was the
// key's newest at the moment its state word was loaded: the Get takes effect
// there.
func (t *Table) lookAt(k bucket, meta uint64, want word, key []byte, h uint64, dst []byte) (Item, bool) {
	n := min(int(meta&metaWords), maxWords)
	for i := nextMatch(k.b, 0, n, want); i < n; i = nextMatch(k.b, i+1, n, want) {
		b, at := t.itemOf(k, k.word(i))
		if it, out := readItem(b, t.incarnation, at, key, h, dst); out == hit {
			return it, true
		}
	}
	return Item{}, false
}

// itemOf returns the bytes of the slot that the index word names, nil where it
// is no legal word.
func (t *Table) itemOf(k bucket, w word) ([]byte, address) {
	if w.inline() {
		return cell(k.b, w), k.at + w.at()
	}
	return t.arena.bytes(w.at(), classSize(w.class())), w.at()
}

// readItem reads the item of a key from the bytes of a slot, which may change
// under it: hit only if it is live, its key is equal and both sums are right.
func readItem(b []byte, incarnation uint64, at address, key []byte, h uint64, dst []byte) (Item, outcome) {
	r, ok := parseItem(b)
	if !ok || !r.live() {
		return Item{}, unclear
	}
	if !bytes.Equal(r.key, key) {
		return Item{}, other
	}
	if !r.headerHolds(incarnation, at, h) {
		return Item{}, unclear
	}
	from := len(dst)
	dst = append(dst, r.value...)
	if !r.valueHolds(dst[from:]) {
		return Item{}, unclear
	}
	return Item{Version: r.version, Deadline: r.deadline, Size: len(dst) - from, Value: dst}, hit
}

// absent proves that the key is not in the candidate: every bucket of it is
// sound, current for the geometry, and names no item that could be the key's.
//
// A key that stays in the table stays at one place of one bucket, except that a
// split or merge takes it along; then its old bucket has a newer epoch, or is
// marked moved, before the key is taken out of it. So if the key had been there
// throughout the look, its word would have been in one of the images.
func (t *Table) absent(geo *geometry, c candidate, key []byte, h uint64) bool {
	var im image
	k := mainOf(geo, c)
	if !im.take(k.b) || !im.is(t.incarnation, geo.epoch, c.group, c.side) || !t.noneIn(&im, k, c.want, key, h) {
		return false
	}
	if im.spilled() == 0 {
		return true
	}
	k = sharedOf(geo, c)
	kind := kindShared
	for range maxChain {
		if !im.take(k.b) || !im.is(t.incarnation, geo.epoch, c.group, kind) || !t.noneIn(&im, k, c.want, key, h) {
			return false
		}
		if k.at = im.next(); k.at == 0 {
			return true
		}
		k.b, kind = t.arena.bytes(k.at, bucketSize), kindExtra
	}
	return false
}

// noneIn reports whether no word of the image can be the key's: those with its
// tag name sound items of other keys.
func (t *Table) noneIn(im *image, k bucket, want word, key []byte, h uint64) bool {
	for i := nextMatch(im.b[:], 0, im.n, want); i < im.n; i = nextMatch(im.b[:], i+1, im.n, want) {
		b, at := t.itemOf(k, im.word(i))
		r, ok := parseItem(b)
		if !ok {
			return false
		}
		sum := keyHash(r.key)
		if sum == h {
			// The key itself, just written, or another one of its hash: tell by
			// a copy, so that what is compared is what was summed.
			copied := bytes.Clone(r.key)
			if sum = keyHash(copied); bytes.Equal(copied, key) {
				return false
			}
		}
		if !r.headerHolds(t.incarnation, at, sum) {
			return false
		}
	}
	return true
}
