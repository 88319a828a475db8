package table

import (
	"sync/atomic"
	"unsafe"
)

// grace tells when memory that no index word names any more can no longer be
// seen by anybody. Today those who may see it are local readers; grants of
// clients that read one-sided join behind the same interface.
type grace interface {
	// stamp is taken after the memory became unreachable.
	stamp() uint64
	// passed reports whether everybody who could have reached it by then has
	// gone. It does not wait. Calls are serialized by the caller.
	passed(stamp uint64) bool
}

// readers counts local readers by epoch (epoch-based reclamation; Fraser,
// "Practical lock-freedom", 2004).
//
// A reader counts itself under the epoch's parity and goes in only if the epoch
// is still the same afterwards. The epoch is raised from e to e+1 only when the
// count of e-1, which has the parity of e+1, is zero; so those inside always
// belong to the current epoch or the one before, and each parity's count is of
// one epoch. Memory retired at stamp e can be known to readers of epochs up to
// e only: later ones came in after it had left the index. When the epoch is
// e+2, the count of e has been seen at zero, and none of them is left.
//
// Ordering: all operations are sequentially consistent atomics. A reader that
// passed its second look at the epoch had its increment done before the epoch
// was raised past it, so the raiser's later sum sees it. Readers that fail the
// look come and go in counts not theirs, which can only delay a raise.
type readers struct {
	epoch  atomic.Uint64
	counts [readerShards]readerCount
}

const readerShards = 32

// readerCount keeps the counts of different goroutines on different cache
// lines (two lines, since adjacent ones are fetched in pairs).
type readerCount struct {
	n [2]atomic.Int64
	_ [112]byte
}

// enter counts the caller as a reader until it calls exit with what enter
// returned. A reader between the two must not wait for the writer.
func (r *readers) enter() *atomic.Int64 {
	// The address of a local variable spreads goroutines over the shards, as
	// their stacks differ; it is a hint only and names nothing afterwards.
	var here byte
	shard := uintptr(unsafe.Pointer(&here)) >> 11 * 0x9e3779b1 >> 16 % readerShards
	for {
		e := r.epoch.Load()
		n := &r.counts[shard].n[e&1]
		n.Add(1)
		if r.epoch.Load() == e {
			return n
		}
		n.Add(-1)
	}
}

func exit(n *atomic.Int64) { n.Add(-1) }

func (r *readers) stamp() uint64 { return r.epoch.Load() }

func (r *readers) passed(stamp uint64) bool {
	for r.epoch.Load() < stamp+2 {
		if !r.advance() {
			return false
		}
	}
	return true
}

func (r *readers) advance() bool {
	e := r.epoch.Load()
	for i := range r.counts {
		if r.counts[i].n[(e+1)&1].Load() != 0 {
			return false
		}
	}
	r.epoch.Store(e + 1)
	return true
}
