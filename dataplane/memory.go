package dataplane

import (
	"os"
	"sync"

	"github.com/sundog-kv/sundog"
)

// Memory is a node's registered memory: an exact byte budget over all the
// regions mapped from it. It is safe for concurrent use.
type Memory struct {
	limit int64

	mu   sync.Mutex // guards used
	used int64
}

// NewMemory returns a budget of limit bytes; nothing is mapped yet.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Used returns the bytes of all regions mapped and not closed.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Limit returns the budget in bytes.
func (m *Memory) Limit() int64 { return m.limit }

// Map maps a zeroed region of size bytes, rounded up to whole pages of the
// machine, outside Go's heap. On Linux it is a memfd of mode 0400, sealed
// against shrinking, growing and further sealing, so that its read-only
// descriptor can be handed to another process; elsewhere it is anonymous
// memory. Huge pages are asked for where a region is large enough for them,
// and done without where the system has none.
//
// Errors: Invalid for a size below one byte; NoSpace, with Used and Limit, when
// the budget or the system has not that much left; nothing is mapped then.
func (m *Memory) Map(size int64) (*Region, error) {
	if size < 1 {
		return nil, sundog.Errorf(sundog.Invalid, "map %d bytes: a region has at least one", size)
	}
	page := int64(os.Getpagesize())
	rounded := (size + page - 1) / page * page
	if err := m.reserve(rounded); err != nil {
		return nil, err
	}
	mapping, err := mapRegion(rounded)
	if err != nil {
		m.release(rounded)
		return nil, err
	}
	return &Region{memory: m, mapping: mapping}, nil
}

func (m *Memory) reserve(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 0 || n > m.limit-m.used {
		err := sundog.Errorf(sundog.NoSpace, "registered memory: %d bytes asked for, %d of %d in use", n, m.used, m.limit)
		err.Used, err.Limit = m.used, m.limit
		return err
	}
	m.used += n
	return nil
}

func (m *Memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}

// Region is one mapping of registered memory.
type Region struct {
	memory  *Memory
	mapping mapping

	once sync.Once
	err  error
}

// Bytes returns the whole region. The slice must not be used after Close.
func (r *Region) Bytes() []byte { return r.mapping.bytes }

// Size returns the region's bytes, as they count in the budget.
func (r *Region) Size() int64 { return int64(len(r.mapping.bytes)) }

// Close unmaps the region and gives its bytes back to the budget. The caller
// makes sure that nobody reads it any more: a later access is a fault. Closing
// twice is harmless.
func (r *Region) Close() error {
	r.once.Do(func() {
		size := r.Size()
		if r.err = r.mapping.close(); r.err == nil {
			r.memory.release(size)
		}
	})
	return r.err
}

// mapError gives a failed mapping its kind: the system is out of memory,
// address space or descriptors, or something unexpected.
func mapError(what string, size int64, scarce bool, err error) error {
	kind := sundog.Internal
	if scarce {
		kind = sundog.NoSpace
	}
	return sundog.Errorf(kind, "map %d bytes of registered memory: %s: %w", size, what, err)
}
