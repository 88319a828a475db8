package table

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// Item is what a table holds under a key.
type Item struct {
	Version  sundog.Version
	Deadline int64  // Unix milliseconds; 0 is none
	Size     int    // bytes of the value, also where the value itself is not copied
	Value    []byte // nil from Lookup and from key-only reads
}

// Entry is an item with its key, as a Cut returns it.
type Entry struct {
	Key      []byte
	Value    []byte
	Version  sundog.Version
	Deadline int64 // Unix milliseconds; 0 is none
}

// ArenaStats counts an arena's bytes.
type ArenaStats struct {
	Reserved int64 // mapped from the node's memory
	Live     int64 // allocated to items and indexes, quarantined ones included
}

// Stats counts a table.
type Stats struct {
	Keys       int64 // live keys
	LiveBytes  int64 // bytes of their keys and values, exactly
	ItemBytes  int64 // bytes allocated to items that lie outside the index
	IndexBytes int64 // bytes allocated to the index, inline pairs included
}

// Arena is the memory of one pool on one node, shared by its tables.
type Arena struct{}

// NewArena returns an empty arena over the node's memory.
func NewArena(mem *dataplane.Memory) *Arena { return &Arena{} }

// Stats returns the arena's counters.
func (a *Arena) Stats() ArenaStats { return ArenaStats{} }

// Close gives the arena's memory back. All its tables must be closed before;
// kind Conflict otherwise.
func (a *Arena) Close() error { return nil }

// Config is what a table needs.
type Config struct {
	Arena       *Arena
	Partition   sundog.Partition
	Incarnation uint64       // random, never zero
	Logger      *slog.Logger // nil discards
}

type stored struct {
	key, value []byte
	version    sundog.Version
	deadline   int64
}

// Table is one hash table: one writer at a time, any number of readers.
type Table struct {
	mu    sync.RWMutex
	items map[string]stored
	bytes int64
}

// New makes an empty table. NoSpace when its index does not fit.
func New(c Config) (*Table, error) {
	if c.Arena == nil || c.Incarnation == 0 {
		return nil, sundog.Errorf(sundog.Invalid, "a table needs an arena and an incarnation that is not zero")
	}
	return &Table{items: map[string]stored{}}, nil
}

// Get returns the item of a key, its value appended to dst. Any goroutine.
func (t *Table) Get(key, dst []byte) (Item, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.items[string(key)]
	if !ok {
		return Item{}, false
	}
	return Item{Version: s.version, Deadline: s.deadline, Size: len(s.value), Value: append(dst, s.value...)}, true
}

// Lookup returns an item without its value (Size says how long it is).
func (t *Table) Lookup(key []byte) (Item, bool) {
	it, ok := t.Get(key, nil)
	it.Value = nil
	return it, ok
}

// Put stores a value. NoSpace when the memory does not suffice: nothing has
// changed then. Invalid or TooLarge for a key or value that is no legal one.
func (t *Table) Put(key, value []byte, v sundog.Version, deadline int64, term uint64) error {
	if err := sundog.CheckKey(key); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(key)
	t.items[string(key)] = stored{slices.Clone(key), slices.Clone(value), v, deadline}
	t.bytes += int64(len(key) + len(value))
	return nil
}

func (t *Table) remove(key []byte) bool {
	s, ok := t.items[string(key)]
	if ok {
		t.bytes -= int64(len(key) + len(s.value))
		delete(t.items, string(key))
	}
	return ok
}

// Delete removes a key and reports whether it was there.
func (t *Table) Delete(key []byte, term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(key)
}

// Scan calls fn for about max items from the cursor on (0 begins) and returns
// the cursor to go on with, 0 at the end. A key that is there throughout is
// seen at least once, whatever is written meanwhile. fn returns false to stop
// after that item; key and value are valid during the call only.
func (t *Table) Scan(cursor uint64, max int, fn func(key []byte, it Item) bool) (next uint64) {
	t.mu.RLock()
	all := slices.SortedFunc(maps.Values(t.items), func(a, b stored) int { return slices.Compare(a.key, b.key) })
	t.mu.RUnlock()
	for i := cursor; i < uint64(len(all)); i++ {
		s := all[i]
		max--
		if !fn(s.key, Item{Version: s.version, Deadline: s.deadline, Size: len(s.value), Value: s.value}) || max <= 0 {
			if i+1 < uint64(len(all)) {
				return i + 1
			}
			return 0
		}
	}
	return 0
}

// Cut returns a consistent cut of the table at this instant. The writer calls
// it; another goroutine reads it while the writer goes on.
func (t *Table) Cut() *Cut {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return &Cut{left: slices.Collect(maps.Values(t.items))}
}

// Stats returns the table's counters.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Stats{Keys: int64(len(t.items)), LiveBytes: t.bytes}
}

// Compact does a bounded piece of housekeeping: it releases memory whose
// readers have gone and moves items out of sparsely used chunks so that these
// can be given back. The writer calls it when idle, a few times a second; it
// reports whether there is more to do.
func (t *Table) Compact() (more bool) { return false }

// Activate writes the term under which the table may be read one-sided into
// its header; 0 deactivates. The writer calls it.
func (t *Table) Activate(term uint64) {}

// Close gives the table's memory back to the arena. Later reads find nothing.
func (t *Table) Close() {}

// Cut is a consistent cut of a table.
type Cut struct{ left []stored }

// Next returns the cut's next entry; its bytes are valid until the next call.
// It returns false at the end.
func (c *Cut) Next() (Entry, bool) {
	if len(c.left) == 0 {
		return Entry{}, false
	}
	s := c.left[0]
	c.left = c.left[1:]
	return Entry{s.key, s.value, s.version, s.deadline}, true
}

// Close ends the cut and releases what it held back. It must be called.
func (c *Cut) Close() {}
