package strong

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
)

// pool is one pool's share of a replica: its table here and its accounts.
type pool struct {
	id      sundog.PoolID
	spec    atomic.Pointer[poolSpec]
	table   *table.Table
	release func() // gives the arena back

	ledger ledger       // guarded by the machine's lock
	keys   atomic.Int64 // written by Apply
	bytes  atomic.Int64 // ledger.used, for Status

	refs    atomic.Int32 // the machine's own, and one for each cut
	retired atomic.Bool  // a snapshot must not go on reading: its replica was restored
}

// changed follows one mutation of a key: sizes in bytes before and after, 0 is
// absent (no key is empty).
func (p *pool) changed(key []byte, from, to int64) {
	p.ledger.applied(key, from, to)
	p.bytes.Store(p.ledger.used)
	switch {
	case from == 0 && to != 0:
		p.keys.Add(1)
	case from != 0 && to == 0:
		p.keys.Add(-1)
	}
}

// hold keeps the table open until the matching drop.
func (p *pool) hold() { p.refs.Add(1) }

// drop gives up one hold; the last one closes the table and frees its memory.
func (p *pool) drop() {
	if p.refs.Add(-1) == 0 {
		p.table.Close()
		p.release()
	}
}

// view is what requests see of the machine: immutable and swapped whole. There
// is none while a snapshot is being restored, after Apply had to stop, and after
// Close.
type view struct {
	catalog sundog.Epoch // of the newest pool set applied
	pools   map[sundog.PoolID]*pool
}

// sorted returns the view's pools by id.
func (v *view) sorted() []*pool { return sortedPools(v.pools) }

func sortedPools(byID map[sundog.PoolID]*pool) []*pool {
	pools := make([]*pool, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		pools = append(pools, byID[id])
	}
	return pools
}

// viewGuard lets requests read tables while Apply goes on, and keeps a table
// open as long as somebody reads it.
type viewGuard struct {
	current atomic.Pointer[view]
	mu      sync.RWMutex // held for reading by readers of tables; for writing to wait them out
}

// read calls fn with the current view, nil if there is none. The view's tables
// stay open until fn returns.
func (g *viewGuard) read(fn func(*view)) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	fn(g.current.Load())
}

// publish swaps the view and waits until nobody reads the one before, so that
// tables which only that one named may be closed.
func (g *viewGuard) publish(v *view) {
	g.current.Store(v)
	g.mu.Lock()
	defer g.mu.Unlock()
}
