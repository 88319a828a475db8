package strong

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
)

const (
	checksKept   = 64              // results that a replica remembers
	checksQueued = 1               // cuts that may wait beside the one being hashed
	checkStale   = 2 * time.Minute // nobody waits any more for a check this old: a replay does not hash it
)

// checkJob is one table to hash, as it was at the check's index.
type checkJob struct {
	id    replication.CheckID
	index uint64
	pool  *pool
	cut   *table.Cut
}

func (j checkJob) close() {
	j.cut.Close()
	j.pool.drop()
}

// applyCheck opens a cut for the hasher. What this does is no part of the
// replicated state, so it may look at its own clock and queue, and give up.
func (m *machine) applyCheck(e raftgroup.Entry, c command) {
	p, ok := m.state.pools[c.pool]
	if !ok || m.now()-millis(e.Clock) > checkStale.Milliseconds() {
		return
	}
	p.hold()
	job := checkJob{id: c.checkID, index: e.Index, pool: p, cut: p.table.Cut()}
	if !m.queue(job) {
		job.close()
		m.logger.Warn("check skipped: too many are waiting", "partition", m.partition, "pool", c.pool)
	}
}

// hash sums the cut. It reports false when the replica was restored or closed
// meanwhile, or its memory is damaged.
func (j checkJob) hash(ctx context.Context) (replication.CheckSum, bool) {
	sum := replication.CheckSum{Index: j.index}
	var total setHash
	for !j.pool.retired.Load() && ctx.Err() == nil {
		e, ok := j.cut.Next()
		if !ok {
			sum.Hash = total.bytes()
			return sum, j.cut.Err() == nil
		}
		total.add(e.Key, e.Value, e.Version, e.Deadline)
		sum.Keys++
	}
	return sum, false
}

// setHash is an order-independent hash of a set of items: the sum modulo 2^128
// of a 128-bit hash of each (two xxhash64 with different beginnings). It finds
// faults; it is not meant to withstand somebody who builds collisions.
type setHash struct {
	low, high uint64
	buf       []byte
}

func (h *setHash) add(key, value []byte, v sundog.Version, deadline int64) {
	b := append(h.buf[:0], 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = v.Append(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(deadline))
	b = append(b, key...)
	b = append(b, value...)
	low := xxhash.Sum64(b)
	b[0] = 2
	high := xxhash.Sum64(b)
	h.buf = b
	h.low += low
	if h.low < low {
		h.high++
	}
	h.high += high
}

func (h *setHash) bytes() (out [16]byte) {
	binary.LittleEndian.PutUint64(out[:8], h.low)
	binary.LittleEndian.PutUint64(out[8:], h.high)
	return out
}

// checkResults keeps the newest results by id.
type checkResults struct {
	mu    sync.Mutex // guards both
	byID  map[replication.CheckID]replication.CheckSum
	order []replication.CheckID
}

func (r *checkResults) put(id replication.CheckID, sum replication.CheckSum) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[replication.CheckID]replication.CheckSum)
	}
	if _, ok := r.byID[id]; !ok {
		r.order = append(r.order, id)
	}
	r.byID[id] = sum
	for len(r.order) > checksKept {
		delete(r.byID, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *checkResults) get(id replication.CheckID) (replication.CheckSum, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum, ok := r.byID[id]
	return sum, ok
}
