package replication

import (
	"log/slog"
	"sync"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/dataplane/table"
)

// Arenas is a node's table memory: one arena a pool, shared by the tables of
// all partitions that the node holds, all within one budget. It also keeps the
// account of memory promised to mutations that are on their way through a log.
// It is safe for concurrent use.
type Arenas struct {
	mem    *dataplane.Memory
	logger *slog.Logger

	mu       sync.Mutex // guards the rest
	byPool   map[sundog.PoolID]*sharedArena
	promised int64 // bytes
}

type sharedArena struct {
	arena    *table.Arena
	refs     int
	promised int64 // free slots, of whatever size
}

// NewArenas returns the arenas of a node with this memory. A nil logger
// discards.
func NewArenas(mem *dataplane.Memory, logger *slog.Logger) *Arenas {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Arenas{mem: mem, logger: logger, byPool: make(map[sundog.PoolID]*sharedArena)}
}

// Acquire returns the pool's arena, which stays open until the matching Release.
func (a *Arenas) Acquire(pool sundog.PoolID) *table.Arena {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPool[pool]
	if s == nil {
		s = &sharedArena{arena: table.NewArena(a.mem)}
		a.byPool[pool] = s
	}
	s.refs++
	return s.arena
}

// Release ends one Acquire; the last one gives the pool's memory back. The
// caller has closed its table.
func (a *Arenas) Release(pool sundog.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPool[pool]
	if s == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	delete(a.byPool, pool)
	if err := s.arena.Close(); err != nil {
		a.logger.Error("arena not closed", "pool", pool, "reason", err)
	}
}

// Promise is node memory set aside for one mutation on its way. The zero
// Promise is of nothing.
type Promise struct {
	bytes int64         // of memory that is not mapped yet
	slot  sundog.PoolID // or a free slot of this pool's arena
}

// Promise sets node memory aside for a pair that is about to be proposed.
//
// It is taken from what is not mapped yet, less a reserve, or, where that is
// spent, from the free slots of the pair's own size class: other free bytes
// inside mapped chunks may not fit it, and a replica that finds no room in Apply
// has to stop. Since the nodes that share partitions promise at the same time
// what each then stores on all of them, each promises only one of leaders parts
// of what it has itself. The error is of kind NoSpace with Used and Limit;
// nothing is set aside then.
func (a *Arenas) Promise(pool sundog.PoolID, keySize, valueSize, leaders int) (Promise, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, parts := room(int64(keySize+valueSize)), int64(max(1, leaders))
	used, limit := a.mem.Used(), a.mem.Limit()
	if a.promised+n <= (limit-used-reserve(limit))/parts {
		a.promised += n
		return Promise{bytes: n}, nil
	}
	if s := a.byPool[pool]; s != nil && s.promised < s.arena.FreeSlots(keySize, valueSize)/parts {
		s.promised++
		return Promise{slot: pool}, nil
	}
	err := sundog.Errorf(sundog.NoSpace, "this node's memory is full: %d of %d bytes in use, %d promised, %d more asked for", used, limit, a.promised, n)
	err.Used, err.Limit = used, limit
	return Promise{}, err
}

// Settle ends a Promise.
func (a *Arenas) Settle(p Promise) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.promised -= p.bytes
	if s := a.byPool[p.slot]; s != nil && s.promised > 0 {
		s.promised--
	}
}

// reserve is what Promise leaves free, 1/32 of the memory within bounds: room
// for growing indexes, for what this node applies as a follower meanwhile, and
// for started chunks and spans.
func reserve(limit int64) int64 { return min(max(limit/32, 1<<20), 256<<20) }

// room is the memory that a pair of n bytes may take: a slot with its head and a
// share of the index and, where it is too large to share a span of pages with
// others, the rest of a chunk that it may leave unused.
func room(n int64) int64 {
	const head, shared = 128, 32 << 10
	if n > shared {
		n *= 2
	}
	return n + n/8 + head
}

// Memory returns the budget that the arenas share.
func (a *Arenas) Memory() *dataplane.Memory { return a.mem }
