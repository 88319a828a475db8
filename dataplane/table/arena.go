package table

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// Arena is the registered memory of one pool on one node, shared by the pool's
// tables there. It grows chunk by chunk within the node's budget and gives
// chunks back. It is safe for concurrent use by the tables' writers.
type Arena struct {
	mem     *dataplane.Memory
	readers readers
	grace   grace

	// chunks is indexed by chunk number; nil where there is none. The slice is
	// replaced, never changed, so that readers resolve addresses without a lock.
	chunks atomic.Pointer[[]*chunk]
	round  atomic.Uint64 // number of the current compaction round; compact.go

	mu      sync.Mutex // guards all below, and the heaps' chunks
	items   heap
	index   heap
	tables  int
	limbo   []retired // quarantine, oldest first from limboAt on
	limboAt int
	inLimbo int64 // bytes
	gone    uint64
	compact compaction
}

// retired is a slot in quarantine.
type retired struct {
	at    address
	stamp uint64
	class uint8
	index bool
}

// ArenaStats counts an arena's bytes.
type ArenaStats struct {
	Reserved    int64 // mapped from the node's memory
	Live        int64 // allocated to items and indexes, in whole slots, quarantine included
	Quarantined int64 // of Live: out of the index, waiting for readers to leave
}

// NewArena returns an empty arena over the node's memory.
func NewArena(mem *dataplane.Memory) *Arena {
	a := &Arena{mem: mem}
	a.grace = &a.readers
	a.items.arena, a.index.arena = a, a
	a.chunks.Store(&[]*chunk{nil})
	return a
}

// Stats returns the arena's counters.
func (a *Arena) Stats() ArenaStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ArenaStats{
		Reserved:    a.items.reserved + a.index.reserved,
		Live:        a.items.live + a.index.live,
		Quarantined: a.inLimbo,
	}
}

// FreeSlots is how many items of that key and value length the arena surely
// takes out of line without mapping more memory, whatever their version and
// deadline: free slots in spans that are used, and those that a kept empty chunk
// gives. Free pages of other chunks are not counted, nor is what waits in the
// quarantine, so the truth may be more.
func (a *Arena) FreeSlots(keyLen, valueLen int) int64 {
	most := classOf(itemFixed + 16 + keyLen + valueLen)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.freeOf(most)
	for least := classOf(itemFixed + keyLen + valueLen); least < most; least++ {
		n = min(n, a.freeOf(least))
	}
	return n
}

func (a *Arena) freeOf(class uint8) int64 {
	n := a.items.free[class]
	if spare := a.items.spare; spare != nil {
		pages := spanPages(class)
		n += int64(len(spare.pages) / pages * (pages * pageSize / classSize(class)))
	}
	return n
}

// Close gives the arena's memory back. All its tables must be closed before:
// kind Conflict otherwise, and nothing has happened. It waits for readers that
// are still inside a Get of a closed table, which takes microseconds.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tables > 0 {
		return sundog.Errorf(sundog.Conflict, "close table arena: %d tables are open", a.tables)
	}
	for spins := 0; !a.reclaim(); spins++ {
		pause(spins)
	}
	var errs []error
	for _, c := range *a.chunks.Load() {
		if c != nil {
			errs = append(errs, c.region.Close())
		}
	}
	a.chunks.Store(&[]*chunk{nil})
	a.items = heap{arena: a}
	a.index = heap{arena: a}
	return errors.Join(errs...)
}

// chunk returns the chunk of that number, which exists.
func (a *Arena) chunk(id uint32) *chunk { return (*a.chunks.Load())[id] }

// bytes returns the size bytes at an address, nil where the arena has none
// there. The caller has entered as a reader or owns what lies there; then the
// bytes stay mapped.
func (a *Arena) bytes(at address, size int) []byte {
	chunks := *a.chunks.Load()
	id, off := uint64(at.chunk()), at.offset()
	if id >= uint64(len(chunks)) || chunks[id] == nil {
		return nil
	}
	b := chunks[id].bytes
	if off+size > len(b) {
		return nil
	}
	return b[off : off+size : off+size]
}

// addChunk gives the region the lowest free chunk number.
func (a *Arena) addChunk(region *dataplane.Region) *chunk {
	old := *a.chunks.Load()
	id := 1
	for id < len(old) && old[id] != nil {
		id++
	}
	chunks := append(make([]*chunk, 0, len(old)+1), old...)
	if id == len(chunks) {
		chunks = append(chunks, nil)
	}
	c := newChunk(uint32(id), region)
	chunks[id] = c
	a.chunks.Store(&chunks)
	return c
}

func (a *Arena) dropChunk(c *chunk) {
	chunks := append([]*chunk(nil), *a.chunks.Load()...)
	chunks[c.id] = nil
	a.chunks.Store(&chunks)
	// Its slots have passed the quarantine, so no reader is inside it.
	if err := c.region.Close(); err != nil {
		panic(sundog.Errorf(sundog.Internal, "unmap a chunk of %d bytes: %w", c.region.Size(), err))
	}
}

func (a *Arena) heap(index bool) *heap {
	if index {
		return &a.index
	}
	return &a.items
}

// alloc returns a slot. When memory is short but some is in quarantine it waits
// for that (local readers are inside for microseconds) before it says NoSpace.
func (a *Arena) alloc(class uint8, index bool) (address, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.gone + uint64(len(a.limbo)-a.limboAt) // what is retired by now
	for spins := 0; ; spins++ {
		at, err := a.heap(index).alloc(class)
		if err == nil || sundog.KindOf(err) != sundog.NoSpace {
			return at, err
		}
		if a.items.dropSpare() || a.index.dropSpare() || a.endRound() {
			continue
		}
		if a.gone >= last || len(a.limbo) == a.limboAt {
			return 0, err
		}
		if before := a.gone; !a.reclaim() && a.gone == before {
			a.mu.Unlock()
			pause(spins)
			a.mu.Lock()
		}
	}
}

// pause yields, and after a while sleeps, between two looks at the readers.
func pause(spins int) {
	if spins < 64 {
		runtime.Gosched()
		return
	}
	time.Sleep(50 * time.Microsecond)
}

// reclaimEvery is how many slots, or bytes, are retired between two looks at
// the readers.
const (
	reclaimEvery = 64
	reclaimBytes = 256 << 10
)

// retire takes over a slot that no index word names any more, and releases it
// once no reader can still see it.
func (a *Arena) retire(at address, class uint8, index bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limbo = append(a.limbo, retired{at: at, stamp: a.grace.stamp(), class: class, index: index})
	a.inLimbo += int64(classSize(class))
	if waiting := len(a.limbo) - a.limboAt; waiting%reclaimEvery == 0 || a.inLimbo > reclaimBytes {
		a.reclaim()
	}
}

// discard releases a slot that was never named by an index word.
func (a *Arena) discard(at address, class uint8, index bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heap(index).release(at, class)
}

// reclaim releases what has passed the quarantine and reports whether nothing
// is left in it. The caller holds mu.
func (a *Arena) reclaim() bool {
	for a.limboAt < len(a.limbo) && a.grace.passed(a.limbo[a.limboAt].stamp) {
		r := a.limbo[a.limboAt]
		a.limboAt++
		a.gone++
		a.inLimbo -= int64(classSize(r.class))
		a.heap(r.index).release(r.at, r.class)
	}
	if a.limboAt > len(a.limbo)/2 {
		n := copy(a.limbo, a.limbo[a.limboAt:])
		a.limbo, a.limboAt = a.limbo[:n], 0
		if cap(a.limbo) > 4096 && n < cap(a.limbo)/8 {
			a.limbo = append(make([]retired, 0, 2*n), a.limbo...)
		}
	}
	a.planRound()
	return a.limboAt == len(a.limbo)
}
