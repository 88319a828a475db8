package strong

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/rpc"
)

// machine is the partition's deterministic state machine, a raftgroup.Machine.
// Apply, Snapshot and Restore are called by the group's own goroutine, one at a
// time; admission and Status look in from others.
type machine struct {
	deps

	lock  chan struct{} // one token: held by Apply, Snapshot, Restore and admission; guards state and ledgers
	state *state        // replicated; empty once the replica stopped at a restore
	guard viewGuard
	ops   []rpc.Op // scratch of Apply
	value []byte   // scratch of Apply

	stopped  atomic.Pointer[sundog.Error] // why Apply does nothing any more
	due      atomic.Int64                 // earliest deadline, Unix ms
	restores atomic.Uint64                // begun
}

// deps is what the machine needs of its surroundings. Nothing of it may change
// what Apply does to the state.
type deps struct {
	partition sundog.Partition
	arenas    arenaSource
	logger    *slog.Logger
	newID     func() uint64       // incarnations of tables; replicas need not agree
	now       func() int64        // Unix ms, for what is not replicated
	queue     func(checkJob) bool // hands a check to the hasher; false: it has enough
	onDue     func()              // the earliest deadline became earlier
	onApply   func()              // something was applied
}

// arenaSource gives each pool its memory on this node.
type arenaSource interface {
	Acquire(sundog.PoolID) *table.Arena
	Release(sundog.PoolID)
}

// state is the replicated state but for the contents of the tables.
type state struct {
	index   uint64         // newest entry applied
	term    uint64         // of that entry
	clock   sundog.Clock   // the partition's time, never goes back
	highest sundog.Version // given to any mutation, of deleted keys too
	catalog sundog.Epoch   // of the newest pool set
	pools   map[sundog.PoolID]*pool
	due     deadlines
}

func newState() *state { return &state{pools: map[sundog.PoolID]*pool{}} }

// now is the partition's time in Unix ms.
func (s *state) now() int64 { return millis(s.clock) }

// millis is a clock's physical part; the counter is its low 16 bits.
func millis(c sundog.Clock) int64 { return int64(c >> 16) }

func newMachine(d deps) *machine {
	m := &machine{deps: d, lock: make(chan struct{}, 1), state: newState()}
	m.guard.current.Store(&view{})
	m.due.Store(neverDeadline)
	return m
}

// tryLock takes the lock unless ctx ends first.
func (m *machine) tryLock(ctx context.Context) bool {
	select {
	case m.lock <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *machine) unlock() { <-m.lock }

// compact has every table do a piece of housekeeping and reports whether one
// has more to do. It is the writer for that moment.
func (m *machine) compact(ctx context.Context) (more bool) {
	if !m.tryLock(ctx) {
		return false
	}
	defer m.unlock()
	for _, p := range m.state.pools {
		more = p.table.Compact() || more
	}
	return more
}
