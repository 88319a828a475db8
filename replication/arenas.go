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
	promised int64
}

type sharedArena struct {
	arena *table.Arena
	refs  int
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

// Promise sets n bytes of node memory aside for a mutation of the pool that is
// about to be proposed. What may be promised is what is not mapped yet and what
// the pool's own arena has mapped and not used, less a reserve for index growth
// and size classes; so a promise is an estimate, kept on the safe side. The
// error is of kind NoSpace with Used and Limit; nothing is set aside then.
func (a *Arenas) Promise(pool sundog.PoolID, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	used, limit := a.mem.Used(), a.mem.Limit()
	free := limit - used
	if s := a.byPool[pool]; s != nil {
		st := s.arena.Stats()
		free += max(0, st.Reserved-st.Live)
	}
	if a.promised+n > free-reserve(limit) {
		err := sundog.Errorf(sundog.NoSpace, "this node's memory is full: %d of %d bytes in use, %d promised, %d more asked for", used, limit, a.promised, n)
		err.Used, err.Limit = used, limit
		return err
	}
	a.promised += n
	return nil
}

// Settle ends a Promise of n bytes.
func (a *Arenas) Settle(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.promised -= n
}

// reserve is what Promise leaves free: 1/32 of the memory, at most 256 MiB.
func reserve(limit int64) int64 { return min(limit/32, 256<<20) }

// Memory returns the budget that the arenas share.
func (a *Arenas) Memory() *dataplane.Memory { return a.mem }
