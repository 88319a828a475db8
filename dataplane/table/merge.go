package table

import "slices"

// move is an entry's way from the group that is given up into its buddy: word i
// of bucket kind to, a cell at granule off, or a slot of the arena for a pair
// that finds no cell there.
type move struct {
	where
	to, toI, off int
	slot         address
	class        uint8
}

// merge gives up the last group: its entries go into its buddy. The order is
// that of a split the other way round: copies first, then the smaller geometry
// is published, then the old group is marked moved, then its entries die there.
// It does nothing and returns false where the buddy has no room.
func (t *Table) merge() bool {
	t.unmerged.groups, t.unmerged.demand = t.cur.groups, t.demand
	last := t.cur.groups - 1
	into := buddyOf(last)
	from := slices.Clone(t.buckets(last))
	to := slices.Clone(t.buckets(into))
	if len(from) > bucketKinds || len(to) > bucketKinds {
		return false
	}
	moves, ok := t.planMerge(from, to)
	if !ok {
		return false
	}
	next := &geometry{epoch: t.cur.epoch + 1, groups: last, segs: t.cur.segs}
	seg, in := segmentOf(last)
	if in == 0 && seg > 0 {
		next.segs = next.segs[:seg:seg] // clipped: a later append must not write under older readers
	}
	t.beforeChange(last)
	t.beforeChange(into)
	t.copyInto(from, to, moves)
	t.publish(next)
	t.reached(pointPublished)
	for k := range bucketKinds {
		storeWord(to[k].b, offEpoch, next.epoch)
		to[k].seal()
		storeWord(from[k].b, offEpoch, next.epoch)
		from[k].setMeta(from[k].meta() | metaMoved)
		from[k].seal()
	}
	t.reached(pointMoved)
	for _, m := range moves {
		k := from[m.k]
		if w := k.word(m.i); w.inline() {
			markDead(cell(k.b, w))
		}
		k.setWord(m.i, 0)
	}
	for _, k := range from {
		k.seal()
	}
	if in == 0 && seg > 0 {
		old := t.segmentAt(int(seg))
		t.retireIndex(old, classOf(segmentSize(int(seg))))
	}
	t.unmerged.groups = 0
	return true
}

// segmentAt is a segment's address by the directory, which keeps it until
// another one takes its place there.
func (t *Table) segmentAt(seg int) address { return address(loadWord(t.directory.b, 8*seg)) }

// planMerge finds a place in the buddy for every entry, and memory for those
// that must leave their bucket; it changes nothing else.
func (t *Table) planMerge(from, to []bucket) (moves []move, ok bool) {
	var rooms [bucketKinds]room
	for k := range rooms {
		rooms[k] = roomOf(to[k])
	}
	for k, src := range from {
		for i := range src.words() {
			w := src.word(i)
			if w == 0 {
				continue
			}
			m, ok := t.planMove(&rooms, src, w)
			if !ok {
				for _, m := range moves {
					if m.slot != 0 {
						t.arena.discard(m.slot, m.class, false)
					}
				}
				return nil, false
			}
			m.where = where{k, i}
			moves = append(moves, m)
		}
	}
	return moves, true
}

func (t *Table) planMove(rooms *[bucketKinds]room, src bucket, w word) (m move, ok bool) {
	c := t.contentOf(src, w)
	order := [2]int{sideOf(placeHash(c.keySum, w.choice())), kindShared}
	if w.inline() {
		n := int(w.class())
		for _, m.to = range order {
			if m.toI, m.off, ok = rooms[m.to].pairSlot(n); ok {
				rooms[m.to].take(m.toI, m.off, n)
				return m, true
			}
		}
	}
	for _, m.to = range order {
		if m.toI, ok = rooms[m.to].wordSlot(); !ok {
			continue
		}
		m.off = 0
		if w.inline() {
			m.class = classOf(c.size())
			at, err := t.arena.alloc(m.class, false)
			if err != nil {
				return m, false
			}
			m.slot = at
		}
		rooms[m.to].take(m.toI, 0, 0)
		return m, true
	}
	return m, false
}

// copyInto carries the planned moves out, leaving the old group as it is.
func (t *Table) copyInto(from, to []bucket, moves []move) {
	for _, m := range moves {
		src, dst := from[m.k], to[m.to]
		w := src.word(m.i)
		if w.inline() {
			c := t.contentOf(src, w)
			if m.slot == 0 {
				w = makeWord(c.keySum, w.choice(), address(m.off), w.class(), true)
				writeItem(cell(dst.b, w), t.incarnation, dst.at.plus(m.off), &c)
			} else {
				w = makeWord(c.keySum, w.choice(), m.slot, m.class, false)
				writeItem(t.arena.bytes(m.slot, classSize(m.class)), t.incarnation, m.slot, &c)
				t.stats.Inline--
				t.stats.ItemBytes += int64(classSize(m.class))
			}
		}
		if m.to == kindShared {
			c := t.contentOf(src, src.word(m.i))
			main := to[sideOf(placeHash(c.keySum, w.choice()))]
			main.addSpilled(1)
			main.seal()
		}
		dst.raiseTerm(loadWord(src.b, offTerm))
		dst.setWord(m.toI, w)
		dst.seal()
	}
	term := uint64(0)
	for _, k := range from {
		term = max(term, loadWord(k.b, offTerm))
	}
	for _, k := range to {
		k.raiseTerm(term)
		k.seal()
	}
}
