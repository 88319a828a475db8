package table

import (
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// Item is what a table holds under a key.
type Item struct {
	Version  sundog.Version
	Deadline int64  // Unix milliseconds; 0 is none
	Size     int    // bytes of the value, also where the value is not copied
	Value    []byte // what Get was given, with the value appended; nil from Lookup
}

// Stats counts a table.
type Stats struct {
	Keys       int64 // live keys
	LiveBytes  int64 // bytes of their keys and values, exactly
	ItemBytes  int64 // slots of the items that lie out of line
	IndexBytes int64 // the index: segments, extra buckets, directory, header; inline pairs included
	Groups     int64 // bucket groups in use
	Inline     int64 // keys that lie inline
	Contended  int64 // Gets that took the lock after meeting the writer too often
}

// Config is what a table needs.
type Config struct {
	Arena       *Arena
	Partition   sundog.Partition
	Incarnation uint64       // random, never zero; never that of an earlier table
	Logger      *slog.Logger // nil discards
}

// Table is the hash table of one (pool, partition) replica. One goroutine at a
// time may call Put, Delete, Compact, Cut, Activate and Close (the writer); Get,
// Lookup, Scan and Stats may be called by any.
type Table struct {
	arena       *Arena
	partition   sundog.Partition
	incarnation uint64
	log         *slog.Logger

	// geo is the geometry that readers use; nil when the table is closed. The
	// value it points to never changes.
	geo atomic.Pointer[geometry]

	mu        sync.Mutex // guards all below, and every change of the table's memory
	changed   sync.Cond  // on mu: a cut gave something back
	cur       *geometry  // what geo points to, also after Close while cuts are open
	header    []byte
	headerAt  address
	directory segmentList
	closed    bool
	cuts      []*Cut
	stats     Stats
	contended int64
	demand    int64 // bytes that the entries want in the index; resize.go
	unmerged  struct {
		groups uint32 // when the last merge found no room; 0: it did
		demand int64
	}
	walk struct {
		round  uint64 // last compaction round that needs no more of this table
		target uint64 // round the walk is for
		group  uint32 // next group to walk
	}
	scratch []bucket

	// step is told the points of a change as they pass; tests set it to act
	// between them.
	step func(point)
}

// point names a moment within a change of the table.
type point int

const (
	pointOldDead   point = iota // the old item is dead, its word still names it
	pointSwapped                // the word names the new item
	pointPublished              // a split's new group is published
	pointMoved                  // the old bucket says moved, nothing is missing yet
)

// New makes an empty table. Errors: Invalid for a bad configuration; NoSpace
// when the arena has no room for the smallest index (17 KiB).
func New(c Config) (*Table, error) {
	if c.Arena == nil || c.Incarnation == 0 {
		return nil, sundog.Errorf(sundog.Invalid, "a table needs an arena and an incarnation that is not zero")
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, sundog.Errorf(sundog.Invalid, "the table's format needs a little-endian machine")
	}
	t := &Table{arena: c.Arena, partition: c.Partition, incarnation: c.Incarnation, log: c.Logger}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.changed.L = &t.mu
	if err := t.create(); err != nil {
		return nil, err
	}
	c.Arena.addTable(t)
	return t, nil
}

// Activate writes the term under which the table may be read one-sided into its
// header; 0 says that it may not. The writer calls it.
func (t *Table) Activate(term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		storeWord(t.header, headActive, term)
	}
}

// Stats returns the table's counters.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Contended = t.contended
	if t.cur != nil {
		s.Groups = int64(t.cur.groups)
	}
	return s
}

// Lookup returns an item without its value; Size says how long it is. It sees
// what the writer last wrote.
func (t *Table) Lookup(key []byte) (Item, bool) {
	if sundog.CheckKey(key) != nil {
		return Item{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Item{}, false
	}
	p, ok := t.locate(key, keyHash(key))
	if !ok {
		return Item{}, false
	}
	b, _ := t.itemOf(p.holder, p.w)
	r, _ := parseItem(b)
	return Item{Version: r.version, Deadline: r.deadline, Size: len(r.value)}, true
}

// Put stores a value under a key, in place of what was there. deadline is in
// Unix milliseconds, 0 for none; term is the term of the entry that asks.
//
// Errors, after which nothing has changed: Invalid and TooLarge for what no
// table takes, NoSpace when the node's memory does not suffice, Closed. Memory
// that is only waiting for readers or for an open [Cut] is waited for.
func (t *Table) Put(key, value []byte, v sundog.Version, deadline int64, term uint64) error {
	if err := sundog.CheckKey(key); err != nil {
		return err
	}
	if len(value) > sundog.MaxValue {
		err := sundog.Errorf(sundog.TooLarge, "value of %d bytes: a table takes at most %d", len(value), sundog.MaxValue)
		err.Used, err.Limit = int64(len(value)), sundog.MaxValue
		return err
	}
	c := content{key: key, value: value, version: v, deadline: deadline, keySum: keyHash(key), valueSum: xxhash.Sum64(value)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return sundog.Errorf(sundog.Closed, "table of partition %d is closed", t.partition)
	}
	t.keepHouse()
	if p, ok := t.locate(key, c.keySum); ok {
		return t.replace(p, &c, term)
	}
	t.growFor(c.demand())
	return t.insert(&c, term)
}

// Delete removes a key and reports whether it was there.
func (t *Table) Delete(key []byte, term uint64) bool {
	if sundog.CheckKey(key) != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.keepHouse()
	p, ok := t.locate(key, keyHash(key))
	if !ok {
		return false
	}
	t.beforeChange(p.group)
	b, at := t.itemOf(p.holder, p.w)
	r, _ := parseItem(b)
	t.count(&r, p.w, -1)
	p.raiseTerm(term)
	markDead(b)
	t.reached(pointOldDead)
	t.clearWord(p)
	t.retireItem(at, p.w)
	return true
}

// replace puts c in the place of the entry at p: the update order of the
// format. The new item is written whole before anything changes, so a failed
// allocation leaves everything as it was.
func (t *Table) replace(p place, c *content, term uint64) error {
	r := roomOf(p.holder)
	w, err := t.write(c, p.holder, p.choice, func(n int) (int, bool) { return r.cellSlot(n, r.words) })
	if err != nil {
		return err
	}
	t.beforeChange(p.group)
	old, oldAt := t.itemOf(p.holder, p.w)
	oldItem, _ := parseItem(old)
	t.count(&oldItem, p.w, -1)
	t.countNew(c, w)
	p.raiseTerm(term)
	t.swap(p.holder, p.i, old, w)
	p.seal()
	t.retireItem(oldAt, p.w)
	return nil
}

// swap is the instant of an update. Order [fixed]: the new item is whole
// (write has stored its state word); the old item dies; the word is swapped.
// So a reader by index that finds the new item is later than the death of the
// old one, and nobody finds the old one by a cached address after that. Between
// the two a reader by index finds a dead item and looks again.
//
// Ordering: all three are sequentially consistent stores.
func (t *Table) swap(k bucket, i int, old []byte, w word) {
	if mutantSwapBeforeDead {
		storeWord(k.b, wordAt(i), uint64(w))
		t.reached(pointSwapped)
		markDead(old)
		return
	}
	markDead(old)
	t.reached(pointOldDead)
	storeWord(k.b, wordAt(i), uint64(w))
	t.reached(pointSwapped)
}

// write writes c inline in the bucket where the pair may lie there and slot
// finds room for that many granules, else into a slot of the arena, and returns
// the index word for it. Nothing names the item yet.
func (t *Table) write(c *content, k bucket, choice int, slot func(granules int) (off int, ok bool)) (word, error) {
	if c.fitsInline() {
		n := (c.size() + granule - 1) / granule
		if off, ok := slot(n); ok {
			w := makeWord(c.keySum, choice, address(off), uint8(n), true)
			writeItem(cell(k.b, w), t.incarnation, k.at.plus(off), c)
			return w, nil
		}
	}
	class := classOf(c.size())
	at, err := t.allocItem(class)
	if err != nil {
		return 0, err
	}
	writeItem(t.arena.bytes(at, classSize(class)), t.incarnation, at, c)
	return makeWord(c.keySum, choice, at, class, false), nil
}

// allocItem allocates, and where memory is short waits for what open cuts hold.
func (t *Table) allocItem(class uint8) (address, error) {
	for {
		at, err := t.arena.alloc(class, false)
		if err == nil {
			for _, c := range t.cuts {
				c.young[at] = struct{}{}
			}
			return at, nil
		}
		if !t.cutsHold() {
			return 0, err
		}
		t.changed.Wait()
	}
}

// retireItem gives up the slot of an out-of-line item. Inline cells are free at
// once: a reader that still looks there is told by the sums.
func (t *Table) retireItem(at address, w word) {
	if !w.inline() {
		t.retireSlot(at, w.class(), 0)
	}
}

// retireSlot hands the slot to the first open cut, from that number on, that may
// still have to read it, else to the quarantine.
func (t *Table) retireSlot(at address, class uint8, from int) {
	for _, c := range t.cuts[from:] {
		if c.hold(at, class) {
			return
		}
	}
	t.arena.retire(at, class, false)
}

// count adds an entry to the counters, or takes it out with sign -1.
func (t *Table) count(r *raw, w word, sign int64) {
	t.stats.Keys += sign
	t.stats.LiveBytes += sign * int64(len(r.key)+len(r.value))
	t.demand += sign * demandOf(len(r.key), len(r.value), r.version, r.deadline)
	if w.inline() {
		t.stats.Inline += sign
	} else {
		t.stats.ItemBytes += sign * int64(classSize(w.class()))
	}
}

func (t *Table) countNew(c *content, w word) {
	t.count(&raw{key: c.key, value: c.value, version: c.version, deadline: c.deadline}, w, 1)
}

func (t *Table) reached(p point) {
	if t.step != nil {
		t.step(p)
	}
}
