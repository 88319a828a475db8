package table

import (
	"cmp"
	"slices"
)

// compaction is a round of emptying sparse chunks. Its victims take no new
// slots; every table walks its index once and moves what lies in them; a victim
// that is empty goes back to the node's memory. Guarded by the arena's mutex.
type compaction struct {
	victims []*chunk
	waiting int // tables that have not walked their index yet

	// The item heap when the last round was planned: without a change of these
	// there is nothing new to gain.
	live, reserved int64
}

// A round begins when more than a quarter of the item heap is unused, and only
// chunks used less than half are victims.
const (
	compactShare = 4
	compactLeast = 1 << 20
	victimShare  = 2
)

// planRound begins a round where it is worth it. The caller holds mu.
func (a *Arena) planRound() {
	h, c := &a.items, &a.compact
	unused := h.reserved - h.live
	if c.waiting > 0 || a.tables == 0 || unused < compactLeast || unused < h.reserved/compactShare {
		return
	}
	if near(h.live, c.live, h.reserved/16) && near(h.reserved, c.reserved, h.reserved/16) {
		return
	}
	c.live, c.reserved = h.live, h.reserved
	bySpace := slices.SortedFunc(slices.Values(h.chunks), func(x, y *chunk) int {
		return cmp.Compare(x.live*int64(len(y.pages)), y.live*int64(len(x.pages)))
	})
	moved, room := int64(0), unused
	for _, v := range bySpace {
		if v == h.spare {
			continue
		}
		size := v.region.Size()
		moved += v.live
		room -= size - v.live
		if v.live*victimShare >= size || moved > room {
			break
		}
		c.victims = append(c.victims, v)
	}
	if len(c.victims) == 0 {
		return
	}
	for _, v := range c.victims {
		v.evac.Store(true)
		for first := range v.pages {
			h.unlist(spanRef(uint64(v.id)<<16|uint64(first)), &v.pages[first])
		}
	}
	c.waiting = a.tables
	a.round.Add(1)
}

func near(a, b, within int64) bool { return max(a-b, b-a) < within }

// endRound ends a round early, because memory is short, and reports whether
// there was one. The caller holds mu.
func (a *Arena) endRound() bool {
	if a.compact.waiting == 0 {
		return false
	}
	a.round.Add(1) // tables that still walk for it begin anew with the next
	a.finishRound()
	return true
}

// finishRound makes the victims that are left ordinary chunks again.
func (a *Arena) finishRound() {
	c := &a.compact
	for _, v := range c.victims {
		if a.chunk(v.id) != v {
			continue // given back
		}
		v.evac.Store(false)
		for first := range v.pages {
			if p := &v.pages[first]; p.run > 0 && p.freeSlots > 0 {
				a.items.list(spanRef(uint64(v.id)<<16|uint64(first)), p)
			}
		}
	}
	c.victims, c.waiting = nil, 0
}

// inVictim reports whether the address lies in a chunk that is being emptied.
func (a *Arena) inVictim(at address) bool { return a.chunk(at.chunk()).evac.Load() }

// walked notes that one table has finished its walk for the round, or has gone.
func (a *Arena) walked(round uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.compact.waiting == 0 || a.round.Load() != round {
		return
	}
	if a.compact.waiting > 1 {
		a.compact.waiting--
		return
	}
	a.reclaim() // what was moved last may empty the last victims
	a.finishRound()
}

// addTable counts the table in; a round that is under way does not concern it,
// since new slots never lie in its victims.
func (a *Arena) addTable(t *Table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tables++
	t.walk.round = a.round.Load()
}

func (a *Arena) removeTable(t *Table) {
	round := a.round.Load()
	if t.walk.round != round {
		a.walked(round)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tables--
	a.reclaim()
}

// tidy releases what has passed the quarantine and may begin a round.
func (a *Arena) tidy() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reclaim()
}
