package table

import (
	"bytes"

	"github.com/sundog-kv/sundog"
)

// place is where an entry lies: word i of holder, one of the candidate main
// bucket's own, of its group's shared overflow, or of an extra bucket behind
// that.
type place struct {
	group  uint32
	choice int
	main   bucket
	holder bucket
	before bucket // holder is extra: the bucket whose next names it
	i      int
	w      word
}

// raiseTerm raises the term of every bucket that a reader of this entry, or of
// its absence, must look at.
func (p *place) raiseTerm(term uint64) {
	p.main.raiseTerm(term)
	p.holder.raiseTerm(term)
}

func (p *place) seal() {
	p.holder.seal()
	if p.holder.at != p.main.at {
		p.main.seal()
	}
}

// buckets returns all buckets of a group: the three and the extra ones. The
// slice is valid until the next call.
func (t *Table) buckets(group uint32) []bucket {
	g, at := t.cur.group(group)
	t.scratch = t.scratch[:0]
	for k := range bucketKinds {
		t.scratch = append(t.scratch, bucket{g[k*bucketSize:][:bucketSize:bucketSize], at.plus(k * bucketSize / granule)})
	}
	for next := t.scratch[kindShared].next(); next != 0; {
		k := bucket{t.arena.bytes(next, bucketSize), next}
		t.scratch = append(t.scratch, k)
		next = k.next()
	}
	return t.scratch
}

// locate finds a key, for the writer: nothing changes meanwhile, so keys are
// compared in place and no sum is taken.
func (t *Table) locate(key []byte, h uint64) (place, bool) {
	for choice, c := range candidatesOf(h, t.cur.groups) {
		p := place{group: c.group, choice: choice, main: mainOf(t.cur, c)}
		if t.locateIn(&p, p.main, c.want, key) {
			return p, true
		}
		if p.main.spilled() == 0 {
			continue
		}
		all := t.buckets(c.group)
		if t.locateIn(&p, all[kindShared], c.want, key) {
			return p, true
		}
		p.before = all[kindShared]
		for _, k := range all[bucketKinds:] {
			if t.locateIn(&p, k, c.want, key) {
				return p, true
			}
			p.before = k
		}
	}
	return place{}, false
}

func (t *Table) locateIn(p *place, k bucket, want word, key []byte) bool {
	n := k.words()
	for i := nextMatch(k.b, 0, n, want); i < n; i = nextMatch(k.b, i+1, n, want) {
		w := k.word(i)
		b, _ := t.itemOf(k, w)
		if r, ok := parseItem(b); ok && bytes.Equal(r.key, key) {
			p.holder, p.i, p.w = k, i, w
			return true
		}
	}
	return false
}

// insert adds a new key where there is most room: inline in the emptier of its
// two main buckets, else inline in a shared overflow, else out of line with the
// word in the same order of buckets, else with the word in place of an inline
// pair, else in an extra bucket.
func (t *Table) insert(c *content, term uint64) error {
	p, slot, err := t.choose(c)
	if err != nil {
		return err
	}
	w, err := t.write(c, p.holder, p.choice, slot)
	if err != nil {
		if p.holder.kind() == kindExtra && p.holder.words() == 0 {
			t.unlinkExtra(p.before, p.holder) // made for it
		}
		return err
	}
	t.beforeChange(p.group)
	t.countNew(c, w)
	p.raiseTerm(term)
	if p.holder.at != p.main.at {
		p.main.addSpilled(1) // before the word: a reader must know to look there
		p.main.seal()
	}
	p.holder.setWord(p.i, w)
	p.seal()
	return nil
}

// choose picks the place of a new key and how to find a cell there.
func (t *Table) choose(c *content) (place, func(int) (int, bool), error) {
	var places [4]place // both mains, the emptier first, then their shared buckets
	var rooms [4]room
	for choice, k := range candidatesOf(c.keySum, t.cur.groups) {
		main := mainOf(t.cur, k)
		places[choice] = place{group: k.group, choice: choice, main: main, holder: main}
		places[choice+2] = place{group: k.group, choice: choice, main: main, holder: sharedOf(t.cur, k)}
		rooms[choice] = roomOf(main)
	}
	if rooms[1].free() > rooms[0].free() { // never where both are the same bucket
		places[0], places[1] = places[1], places[0]
		places[2], places[3] = places[3], places[2]
		rooms[0], rooms[1] = rooms[1], rooms[0]
	}
	n := (c.size() + granule - 1) / granule
	if c.fitsInline() {
		for k := range places[:2] {
			if i, off, ok := rooms[k].pairSlot(n); ok {
				places[k].i = i
				return places[k], func(int) (int, bool) { return off, true }, nil
			}
		}
	}
	rooms[2], rooms[3] = roomOf(places[2].holder), roomOf(places[3].holder)
	usable := places[:]
	if places[2].main.spilled() == spillMask || places[3].main.spilled() == spillMask {
		usable = places[:2] // the count of spilled entries is full
	}
	if c.fitsInline() {
		for k := 2; k < len(usable); k++ {
			if i, off, ok := rooms[k].pairSlot(n); ok {
				places[k].i = i
				return places[k], func(int) (int, bool) { return off, true }, nil
			}
		}
	}
	noCell := func(int) (int, bool) { return 0, false }
	for k := range usable {
		if i, ok := rooms[k].wordSlot(); ok {
			places[k].i = i
			return places[k], noCell, nil
		}
	}
	p := places[0]
	if i, ok := t.pushOut(p.group, p.holder); ok {
		p.i = i
		return p, noCell, nil
	}
	if len(usable) < len(places) {
		return place{}, nil, sundog.Errorf(sundog.NoSpace, "bucket of partition %d: %d keys of nearly one hash", t.partition, spillMask)
	}
	err := t.extraFor(&p)
	return p, noCell, err
}

// pushOut makes room for an index word in a bucket full of inline pairs: the
// pair next to the words moves out of line, in the order of an update.
func (t *Table) pushOut(group uint32, k bucket) (i int, ok bool) {
	lowest := -1
	for i := range k.words() {
		if w := k.word(i); w.inline() && (lowest < 0 || w.at() < k.word(lowest).at()) {
			lowest = i
		}
	}
	if lowest < 0 {
		return 0, false
	}
	w := k.word(lowest)
	c := t.contentOf(k, w)
	class := classOf(c.size())
	at, err := t.allocItem(class)
	if err != nil {
		return 0, false
	}
	t.beforeChange(group)
	writeItem(t.arena.bytes(at, classSize(class)), t.incarnation, at, &c)
	t.stats.Inline--
	t.stats.ItemBytes += int64(classSize(class))
	t.swap(k, lowest, cell(k.b, w), makeWord(c.keySum, w.choice(), at, class, false))
	k.seal()
	r := roomOf(k)
	return r.wordSlot()
}

// extraFor places p in an extra bucket of its group with a free word, a new one
// where need be.
func (t *Table) extraFor(p *place) error {
	all := t.buckets(p.group)
	last := all[kindShared]
	for _, k := range all[bucketKinds:] {
		r := roomOf(k)
		if i, ok := r.wordSlot(); ok {
			p.before, p.holder, p.i = last, k, i
			return nil
		}
		last = k
	}
	k, err := t.newExtra(p.group, t.cur.epoch)
	if err != nil {
		return err
	}
	t.beforeChange(p.group)
	last.setNext(k.at)
	last.seal()
	p.before, p.holder, p.i = last, k, 0
	return nil
}

// newExtra makes an extra bucket that nothing names yet.
func (t *Table) newExtra(group uint32, epoch uint64) (bucket, error) {
	at, err := t.arena.alloc(bucketClass, true)
	if err != nil {
		return bucket{}, err
	}
	t.stats.IndexBytes += bucketSize
	k := bucket{t.arena.bytes(at, bucketSize), at}
	initBucket(k, t.incarnation, epoch, 0, group, kindExtra)
	return k, nil
}

// clearWord takes the entry at p out of the index; its item is dead already.
// An extra bucket that is empty then goes, too.
func (t *Table) clearWord(p place) {
	p.holder.setWord(p.i, 0)
	p.holder.seal()
	if p.holder.at == p.main.at {
		return
	}
	p.main.addSpilled(-1) // after the word: nobody misses the overflow too early
	p.main.seal()
	if p.holder.kind() == kindExtra && p.holder.words() == 0 {
		t.unlinkExtra(p.before, p.holder)
	}
}

func (t *Table) unlinkExtra(before, k bucket) {
	before.setNext(k.next())
	before.seal()
	t.stats.IndexBytes -= bucketSize
	t.arena.retire(k.at, bucketClass, true)
}
