package table

// keepHouse is the housekeeping that rides on every Put and Delete: a group of
// the walk when the arena is emptying chunks, and a merge when the index has
// become too large. Open cuts stop both, since each would copy to the cut what
// nobody wrote.
func (t *Table) keepHouse() {
	if t.wantsShrink() {
		t.merge()
	}
	if len(t.cuts) == 0 && t.arena.round.Load() != t.walk.round {
		t.walkGroups(1)
	}
}

// compactGroups is the groups that one Compact walks.
const compactGroups = 64

// Compact does a bounded piece of housekeeping: it releases memory whose
// readers have gone, shrinks the index, and moves items out of sparsely used
// chunks so that these go back to the node's memory. The writer calls it when
// idle, a few times a second, and again at once while it reports that there is
// more to do.
func (t *Table) Compact() (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.cuts) > 0 {
		return false
	}
	for range compactGroups {
		if !t.wantsShrink() || !t.merge() {
			break
		}
	}
	more = t.wantsShrink()
	t.arena.tidy()
	if t.arena.round.Load() != t.walk.round {
		t.walkGroups(compactGroups)
		more = more || t.arena.round.Load() != t.walk.round
	}
	return more
}

// walkGroups goes on with the walk for the current round: items in chunks that
// are being emptied move to others.
func (t *Table) walkGroups(n int) {
	round := t.arena.round.Load()
	if t.walk.target != round {
		t.walk.target, t.walk.group = round, 0
	}
	for range n {
		if t.walk.group >= t.cur.groups {
			t.walk.round = round
			t.arena.walked(round)
			return
		}
		t.relocate(t.walk.group)
		t.walk.group++
	}
}

// relocate moves the group's items out of victim chunks: an update without a
// new version, in the order of an update. No term is raised, since nothing that
// a reader may rely on changes.
func (t *Table) relocate(group uint32) {
	for _, k := range t.buckets(group) {
		moved := false
		for i := range k.words() {
			w := k.word(i)
			if w == 0 || w.inline() || !t.arena.inVictim(w.at()) {
				continue
			}
			at, err := t.arena.alloc(w.class(), false)
			if err != nil {
				return // memory is short; the round has been ended
			}
			c := t.contentOf(k, w)
			writeItem(t.arena.bytes(at, classSize(w.class())), t.incarnation, at, &c)
			old, oldAt := t.itemOf(k, w)
			t.swap(k, i, old, makeWord(c.keySum, w.choice(), at, w.class(), false))
			t.retireItem(oldAt, w)
			moved = true
		}
		if moved {
			k.seal()
		}
	}
}
