package strong

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
)

// Apply executes one committed entry: it moves the partition's time on, removes
// what is due at that time, then executes the commands in order. The result of
// an ops command is []rpc.OpResult, of every other nil. A replica that cannot do
// what the others do stops: it returns no results, which ends its group.
func (m *machine) Apply(e raftgroup.Entry) []any {
	m.lock <- struct{}{}
	defer m.unlock()
	if m.stopped.Load() != nil {
		return nil
	}
	results, err := m.applySafely(e)
	if err != nil {
		m.stop(err)
		return nil
	}
	m.showDue()
	m.onApply()
	return results
}

// applySafely turns the table's panic over damaged memory into an error: one
// partition's damage must not end the others. Any other panic is a fault of ours.
func (m *machine) applySafely(e raftgroup.Entry) (results []any, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *sundog.Error:
			results, err = nil, r
		default:
			panic(r)
		}
	}()
	return m.apply(e)
}

func (m *machine) apply(e raftgroup.Entry) ([]any, error) {
	s := m.state
	s.index, s.term, s.clock = e.Index, e.Term, max(s.clock, e.Clock)
	m.expire()
	results := make([]any, len(e.Commands))
	for i, b := range e.Commands {
		c, err := decodeCommand(b, m.ops)
		if err != nil {
			return nil, err
		}
		switch c.kind {
		case kindOps:
			results[i], err = m.applyOps(e.Clock, c.ops)
			clear(c.ops) // they alias the entry
			m.ops = c.ops
		case kindPools:
			err = m.applyPools(c.set)
		case kindCheck:
			m.applyCheck(e, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// stop ends this replica's part: what it holds is no longer the partition's
// state, so it is hidden from reads and never snapshotted. A restart brings it
// back: it replays its log.
func (m *machine) stop(err error) {
	m.stopped.Store(sundog.AsError(err))
	m.guard.publish(nil)
	m.logger.Error("replica stopped applying", "partition", m.partition, "index", m.state.index, "reason", err)
}

// expire removes every key that is due at the partition's time.
func (m *machine) expire() {
	s, now := m.state, m.state.now()
	for s.due.next() <= now {
		at, id, key := s.due.pop()
		p, ok := s.pools[id]
		if !ok {
			s.due.met()
			continue
		}
		it, ok := p.table.Lookup(key)
		if !ok || it.Deadline != at {
			s.due.met()
			continue
		}
		p.table.Delete(key, s.term)
		p.changed(key, footprint(key, it), 0)
	}
}

// showDue publishes the earliest deadline and has the leader woken when it moved
// forward in the queue.
func (m *machine) showDue() {
	s := m.state
	if s.due.crowded() {
		s.due.compact(s.hasDeadline)
	}
	next := s.due.next()
	if before := m.due.Swap(next); next < before {
		m.onDue()
	}
}

// hasDeadline reports whether the table still has the key with that deadline.
func (s *state) hasDeadline(at int64, id sundog.PoolID, key []byte) bool {
	p, ok := s.pools[id]
	if !ok {
		return false
	}
	it, ok := p.table.Lookup(key)
	return ok && it.Deadline == at
}

func (m *machine) applyOps(clock sundog.Clock, ops []rpc.Op) ([]rpc.OpResult, error) {
	results := make([]rpc.OpResult, len(ops))
	for i := range ops {
		var err error
		if results[i], err = m.applyOp(clock, &ops[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// applyOp executes one op, whole or not at all. An error is not the op's: it
// means that this replica cannot do what the others do.
func (m *machine) applyOp(clock sundog.Clock, op *rpc.Op) (rpc.OpResult, error) {
	p, ok := m.state.pools[op.Pool]
	if !ok {
		return refused(sundog.Version{}, sundog.Stale, "pool %d is not in partition %d", op.Pool, m.partition), nil
	}
	if err := sundog.CheckKey(op.Key); err != nil {
		return rpc.OpResult{Err: sundog.AsError(err)}, nil
	}
	old, found := p.table.Lookup(op.Key)
	if r, ok := conditionHolds(op, old, found); !ok {
		return r, nil
	}
	w := write{pool: p, old: old, found: found, version: m.state.highest.After(clock)}
	switch op.Code {
	case rpc.OpPut:
		w.value, w.deadline = op.Value, m.deadline(op)
	case rpc.OpIncr:
		sum, r, ok := m.increment(p, op, old, found)
		if !ok {
			return r, nil
		}
		m.value = binary.LittleEndian.AppendUint64(m.value[:0], uint64(sum))
		w.value, w.deadline = m.value, old.Deadline
		if op.TTL > 0 {
			w.deadline = m.deadline(op)
		}
		return m.store(op, w, sum)
	case rpc.OpDelete:
		return m.remove(op, w), nil
	}
	return m.store(op, w, 0)
}

// write is one op that is going to be done.
type write struct {
	pool     *pool
	old      table.Item
	found    bool
	value    []byte
	deadline int64
	version  sundog.Version
}

func conditionHolds(op *rpc.Op, old table.Item, found bool) (rpc.OpResult, bool) {
	switch op.Cond {
	case rpc.CondAbsent:
		if found {
			return refused(old.Version, sundog.Exists, "the key exists, at version %s", old.Version), false
		}
	case rpc.CondVersion:
		switch {
		case !found && !op.IfVersion.IsZero():
			return refused(sundog.Version{}, sundog.Conflict, "the key is absent, not at version %s", op.IfVersion), false
		case found && old.Version != op.IfVersion:
			return refused(old.Version, sundog.Conflict, "the key is at version %s, not %s", old.Version, op.IfVersion), false
		}
	}
	if op.Code == rpc.OpDelete && !found {
		return rpc.OpResult{Err: notFound()}, false
	}
	return rpc.OpResult{}, true
}

// increment adds to the counter under the key: 8 bytes, a little-endian int64;
// an absent key counts from 0.
func (m *machine) increment(p *pool, op *rpc.Op, old table.Item, found bool) (int64, rpc.OpResult, bool) {
	var sum int64
	if found {
		if old.Size != counterSize {
			return 0, refused(old.Version, sundog.Invalid, "the value is %d bytes, not a counter of %d", old.Size, counterSize), false
		}
		it, _ := p.table.Get(op.Key, m.value[:0])
		m.value = it.Value
		sum = int64(binary.LittleEndian.Uint64(it.Value))
	}
	if op.Delta > 0 && sum > math.MaxInt64-op.Delta || op.Delta < 0 && sum < math.MinInt64-op.Delta {
		return 0, refused(old.Version, sundog.Invalid, "the counter is %d: adding %d leaves the range of 64 bits", sum, op.Delta), false
	}
	return sum + op.Delta, rpc.OpResult{}, true
}

const counterSize = 8

func (m *machine) store(op *rpc.Op, w write, sum int64) (rpc.OpResult, error) {
	if err := w.pool.table.Put(op.Key, w.value, w.version, w.deadline, m.state.term); err != nil {
		return rpc.OpResult{}, stopReason(err)
	}
	from := int64(0)
	if w.found {
		from = footprint(op.Key, w.old)
	}
	w.pool.changed(op.Key, from, int64(len(op.Key)+len(w.value)))
	m.state.highest = w.version
	if w.deadline != w.old.Deadline {
		if w.old.Deadline != noDeadline {
			m.state.due.left()
		}
		if w.deadline != noDeadline {
			m.state.due.push(w.deadline, op.Pool, op.Key)
		}
	}
	return rpc.OpResult{Version: w.version, Int: sum}, nil
}

func (m *machine) remove(op *rpc.Op, w write) rpc.OpResult {
	w.pool.table.Delete(op.Key, m.state.term)
	w.pool.changed(op.Key, footprint(op.Key, w.old), 0)
	m.state.highest = w.version
	if w.old.Deadline != noDeadline {
		m.state.due.left()
	}
	return rpc.OpResult{Version: w.version}
}

// deadline is when the op's value expires, counted from the entry's time.
func (m *machine) deadline(op *rpc.Op) int64 {
	if op.TTL <= 0 {
		return noDeadline
	}
	return m.state.now() + op.TTL.Milliseconds()
}

// footprint is what a stored pair counts against its pool: key and value bytes.
func footprint(key []byte, it table.Item) int64 { return int64(len(key) + it.Size) }

// notFound is made by hand: misses are frequent.
func notFound() *sundog.Error { return &sundog.Error{Kind: sundog.NotFound, Msg: "no such key"} }

func refused(current sundog.Version, kind sundog.Kind, format string, args ...any) rpc.OpResult {
	return rpc.OpResult{Err: sundog.Errorf(kind, format, args...), Version: current}
}

// stopReason words a failure to allocate for the operator.
func stopReason(err error) error {
	if errors.Is(err, sundog.NoSpace) {
		return sundog.Errorf(sundog.NoSpace, "no memory to apply a committed write; give this node more --memory and restart it: %w", err)
	}
	return err
}
