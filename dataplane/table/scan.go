package table

import (
	"cmp"
	"slices"
)

// A scan cursor is the position to go on from, under the low bits of the
// table's incarnation, so that a table knows the cursor of another.
const cursorMark = ^uint64(0) >> positionBits << positionBits

// scanBatch is how many bytes of keys and values Scan copies at a time, at
// least one entry.
const scanBatch = 64 << 10

// scanned is an entry copied for Scan's caller.
type scanned struct {
	position uint64
	key      []byte
	item     Item
}

// Scan calls fn for limit items or a few more from the cursor on (0 begins) and
// returns the cursor to go on with, 0 at the end. fn returns false to stop; the
// items that share a position with the one it stopped at, nearly always none,
// still come. Key and value are valid during the call only, and fn may use the
// table. The order is by hash.
//
// Every key that is in the table throughout is seen at least once, whatever is
// written meanwhile and however the table grows or shrinks; one that is replaced
// is seen with a value that it had during the scan. The cursor of another table
// (another replica, or this one after a restart) begins anew.
func (t *Table) Scan(cursor uint64, limit int, fn func(key []byte, it Item) bool) (next uint64) {
	mark := t.incarnation << positionBits
	position := cursor &^ cursorMark
	if cursor&cursorMark != mark {
		position = 0
	}
	var s scanner
	for position < positionEnd {
		batch, after, ok := s.gather(t, position, limit)
		if !ok {
			return 0
		}
		stopped := false
		for i, e := range batch {
			if stopped && e.position > batch[i-1].position {
				return mark | e.position
			}
			stopped = !fn(e.key, e.item) || stopped
		}
		position = after
		if limit -= len(batch); (stopped || limit <= 0) && position < positionEnd {
			return mark | position
		}
		if stopped {
			return 0
		}
	}
	return 0
}

// scanner holds Scan's buffers.
type scanner struct {
	snap  snapshot
	found []located
	batch []scanned
	buf   []byte
}

// located is an entry of the snapshot, not yet copied.
type located struct {
	position uint64
	k        bucket
	w        word
}

// gather copies the next entries from a position on, in order, and returns the
// position behind them. Entries of one position stay together. It reports false
// when the table is closed.
func (s *scanner) gather(t *Table, position uint64, limit int) (batch []scanned, next uint64, ok bool) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, 0, false
	}
	group, next := groupAt(position, t.cur.groups)
	s.snap.take(t, group)
	// Entered under the lock: what the snapshot names was in the index then, so
	// it is not reused until exit.
	inside := t.arena.readers.enter()
	t.mu.Unlock()
	defer exit(inside)
	s.found = s.found[:0]
	s.snap.entries(func(k bucket, w word) bool {
		b, _ := t.itemOf(k, w)
		r, _ := parseItem(b)
		if p := positionOf(placeHash(keyHash(r.key), w.choice()), w); p >= position {
			s.found = append(s.found, located{p, k, w})
		}
		return true
	})
	slices.SortFunc(s.found, func(a, b located) int { return cmp.Compare(a.position, b.position) })
	s.batch, s.buf = s.batch[:0], s.buf[:0]
	for i, e := range s.found {
		if i > 0 && e.position > s.found[i-1].position && (i >= limit || len(s.buf) >= scanBatch) {
			return s.batch, e.position, true
		}
		var en Entry
		if en, s.buf, ok = t.entryOf(e.k, e.w, s.buf); !ok {
			t.damaged()
		}
		s.batch = append(s.batch, scanned{e.position, en.Key, Item{
			Version: en.Version, Deadline: en.Deadline, Size: len(en.Value), Value: en.Value,
		}})
	}
	return s.batch, next, true
}

// entryOf appends key and value of the entry to buf, for one who knows that it
// stays where it is, and checks both sums. The entry's bytes stay valid when buf
// moves on.
func (t *Table) entryOf(k bucket, w word, buf []byte) (Entry, []byte, bool) {
	b, at := t.itemOf(k, w)
	r, ok := parseItem(b)
	if !ok {
		return Entry{}, buf, false
	}
	from := len(buf)
	buf = append(append(buf, r.key...), r.value...)
	mid := from + len(r.key)
	key, value := buf[from:mid:mid], buf[mid:len(buf):len(buf)]
	ok = r.headerHolds(t.incarnation, at, keyHash(key)) && r.valueHolds(value)
	return Entry{Key: key, Value: value, Version: r.version, Deadline: r.deadline}, buf, ok
}
