package table

import (
	"slices"

	"github.com/sundog-kv/sundog"
)

// The index grows and shrinks by one group at a time, each group split or
// merged within the Put or Delete that asks for it. What the entries want is
// counted in bytes of bucket: 8 for the word, and the cell where the pair may
// lie inline, whether or not it does.
const (
	growAt   = 90 // percent of the main buckets' bytes wanted: split
	shrinkAt = 78 // of what one group less would have: merge

	splitsEach = 2 // at most so many splits in one Put
)

func demandOf(key, value int, v sundog.Version, deadline int64) int64 {
	if key+value > inlineLimit {
		return 8
	}
	return 8 + int64(itemSize(key, value, v, deadline)+granule-1)/granule*granule
}

func (c *content) demand() int64 {
	return demandOf(len(c.key), len(c.value), c.version, c.deadline)
}

func capacityOf(groups uint32) int64 {
	return int64(groups) * mains * (bucketSize - bucketHeader)
}

// growFor splits groups until so many more bytes are welcome. Where there is no
// memory for it the table goes on with fuller buckets.
func (t *Table) growFor(more int64) {
	for range splitsEach {
		if (t.demand+more)*100 <= capacityOf(t.cur.groups)*growAt || !t.split() {
			return
		}
	}
}

// wantsShrink reports whether one group less would do. After a merge that found
// no room it is false until the entries want a hundredth less.
func (t *Table) wantsShrink() bool {
	if t.unmerged.groups == t.cur.groups && t.demand*100 > t.unmerged.demand*99 {
		return false
	}
	return t.cur.groups > 1 && len(t.cuts) == 0 && t.demand*100 < capacityOf(t.cur.groups-1)*shrinkAt
}

// where is word i of bucket k of a group's list of buckets.
type where struct{ k, i int }

// split makes one group more out of its buddy. Order: the new group is written
// whole, with copies of the entries that will belong to it; it is published;
// the old group's buckets get the new epoch, which tells everybody who looks at
// them by the older geometry; only then are the entries taken out of them. So
// at every instant a reader by the newer geometry finds them in the new group,
// and a reader by the older one finds them in the old group or sees that it
// must not believe their absence.
func (t *Table) split() bool {
	n := t.cur.groups
	if n == maxGroups {
		return false
	}
	next := &geometry{epoch: t.cur.epoch + 1, groups: n + 1, segs: t.cur.segs}
	if seg, in := segmentOf(n); in == 0 && int(seg) == len(next.segs) {
		if t.addSegment(next) != nil {
			return false
		}
	}
	old := buddyOf(n)
	from := slices.Clone(t.buckets(old))
	to, ok := t.freshGroup(next, n, from)
	if !ok {
		if len(next.segs) > len(t.cur.segs) {
			t.discardIndex(next.segs[len(next.segs)-1].at, classOf(segmentSize(len(t.cur.segs))))
		}
		return false
	}
	t.beforeChange(old)
	gone := t.copyOver(from, to, n)
	to = t.linkExtras(to)
	t.publish(next)
	t.reached(pointPublished)
	for _, k := range from {
		storeWord(k.b, offEpoch, next.epoch)
		k.seal()
	}
	t.reached(pointMoved)
	t.takeOut(from, gone)
	t.bringInline(from[:bucketKinds])
	t.bringInline(to[:bucketKinds])
	return true
}

// freshGroup makes group n of empty buckets, with as many extra ones as the
// group it is split from has; those are not linked yet.
func (t *Table) freshGroup(next *geometry, n uint32, from []bucket) ([]bucket, bool) {
	term := uint64(0)
	for _, k := range from {
		term = max(term, loadWord(k.b, offTerm))
	}
	g, at := next.group(n)
	to := make([]bucket, 0, len(from))
	for k := range from {
		if k < bucketKinds {
			b := bucket{g[k*bucketSize:][:bucketSize:bucketSize], at.plus(k * bucketSize / granule)}
			initBucket(b, t.incarnation, next.epoch, term, n, k)
			to = append(to, b)
			continue
		}
		b, err := t.newExtra(n, next.epoch)
		if err != nil {
			for _, b := range to[bucketKinds:] {
				t.discardIndex(b.at, bucketClass)
			}
			return nil, false
		}
		b.raiseTerm(term)
		to = append(to, b)
	}
	return to, true
}

// copyOver copies the entries that belong to group n into the like bucket there
// (an inline one to the like cell: the bucket was empty) and returns where they
// lie in from. Out-of-line items stay where they are and get a second word.
func (t *Table) copyOver(from, to []bucket, n uint32) (gone []where) {
	for k, src := range from {
		for i := range src.words() {
			w := src.word(i)
			if w == 0 {
				continue
			}
			c := t.contentOf(src, w)
			place := placeHash(c.keySum, w.choice())
			if groupOf(place, n+1) != n {
				continue
			}
			dst := to[k]
			if w.inline() {
				writeItem(cell(dst.b, w), t.incarnation, dst.at+w.at(), &c)
			}
			dst.setWord(dst.words(), w)
			if k >= kindShared {
				to[sideOf(place)].addSpilled(1)
			}
			gone = append(gone, where{k, i})
		}
	}
	for _, k := range to {
		k.seal()
	}
	return gone
}

// contentOf is the content of an entry, aliasing its memory; the writer's.
func (t *Table) contentOf(k bucket, w word) content {
	b, _ := t.itemOf(k, w)
	r, _ := parseItem(b)
	return content{
		key: r.key, value: r.value, version: r.version, deadline: r.deadline,
		keySum: keyHash(r.key), valueSum: r.valueSum,
	}
}

// linkExtras links the extra buckets that are used behind the shared one and
// drops the others.
func (t *Table) linkExtras(to []bucket) []bucket {
	kept := to[:bucketKinds:bucketKinds]
	last := to[kindShared]
	for _, k := range to[bucketKinds:] {
		if k.words() == 0 {
			t.discardIndex(k.at, bucketClass)
			continue
		}
		last.setNext(k.at)
		last.seal()
		last = k
		kept = append(kept, k)
	}
	return kept
}

// takeOut takes entries, of which copies are published, out of their old
// buckets. Inline ones die there, so that a cached address to them ends before
// the copy can change.
func (t *Table) takeOut(from []bucket, gone []where) {
	for _, at := range gone {
		k := from[at.k]
		w := k.word(at.i)
		if at.k >= kindShared {
			place := placeHash(t.contentOf(k, w).keySum, w.choice())
			from[sideOf(place)].addSpilled(-1)
		}
		if w.inline() {
			markDead(cell(k.b, w))
		}
		k.setWord(at.i, 0)
	}
	for _, k := range from {
		k.seal()
	}
	before := from[kindShared]
	for _, k := range from[bucketKinds:] {
		if k.words() == 0 {
			t.unlinkExtra(before, k)
		} else {
			before = k
		}
	}
}

// bringInline moves pairs that had to lie out of line for want of room into
// their buckets, in the order of an update.
func (t *Table) bringInline(all []bucket) {
	for _, k := range all {
		for i := range k.words() {
			w := k.word(i)
			if w == 0 || w.inline() || classSize(w.class()) > itemFixed+16+inlineLimit+granule {
				continue
			}
			c := t.contentOf(k, w)
			if !c.fitsInline() {
				continue
			}
			r := roomOf(k)
			n := (c.size() + granule - 1) / granule
			off, ok := r.cellSlot(n, r.words)
			if !ok {
				continue
			}
			old, oldAt := t.itemOf(k, w)
			in := makeWord(c.keySum, w.choice(), address(off), uint8(n), true)
			writeItem(cell(k.b, in), t.incarnation, k.at.plus(off), &c)
			t.stats.Inline++
			t.stats.ItemBytes -= int64(classSize(w.class()))
			t.swap(k, i, old, in)
			t.retireItem(oldAt, w)
		}
		k.seal()
	}
}
