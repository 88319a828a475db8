package strong

import (
	"context"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// ticket is the room set aside for one admitted op.
type ticket struct {
	pool    *pool
	key     string // "" when no quota is charged
	promise int64  // bytes of node memory
}

// admit decides which ops may go into the log: results of those that may not get
// their error. It sets room aside for the others.
func (p *Partition) admit(ctx context.Context, ops []rpc.Op, results []rpc.OpResult) []ticket {
	pools := make([]*pool, len(ops))
	quota := false
	for i := range ops {
		pools[i], results[i].Err = p.checkOp(ctx, &ops[i])
		quota = quota || charges(pools[i], &ops[i])
	}
	// The lock comes after checkOp, which may wait for Apply.
	locked := quota && p.machine.tryLock(ctx)
	if locked {
		defer p.machine.unlock()
	}
	tickets := make([]ticket, 0, len(ops))
	for i := range ops {
		if results[i].Err != nil || ops[i].Code == rpc.OpDelete {
			continue
		}
		if quota && !locked && charges(pools[i], &ops[i]) {
			results[i].Err = sundog.Errorf(sundog.Timeout, "not executed: partition %d is busy: %w", p.partition, ctx.Err())
			continue
		}
		t, err := p.reserve(pools[i], &ops[i])
		if err != nil {
			results[i].Err = sundog.AsError(err)
			continue
		}
		tickets = append(tickets, t)
	}
	return tickets
}

// charges reports whether the op counts against a quota.
func charges(pl *pool, op *rpc.Op) bool {
	return pl != nil && op.Code != rpc.OpDelete && pl.spec.Load().quota > 0
}

// reserve sets aside the room that the op may need: node memory, and the pool's
// share where it has a quota (the machine's lock is held then).
func (p *Partition) reserve(pl *pool, op *rpc.Op) (ticket, error) {
	size := int64(len(op.Key) + len(op.Value))
	if op.Code == rpc.OpIncr {
		size += counterSize
	}
	t := ticket{pool: pl, promise: size + itemRoom}
	if err := p.arenas.Promise(pl.id, t.promise); err != nil {
		return ticket{}, err
	}
	if !charges(pl, op) {
		return t, nil
	}
	t.key = string(op.Key)
	if err := p.charge(pl, op.Key, size); err != nil {
		p.arenas.Settle(t.promise)
		return ticket{}, err
	}
	return t, nil
}

// charge counts the op against the pool's share of this partition.
func (p *Partition) charge(pl *pool, key []byte, size int64) error {
	if p.machine.state.pools[pl.id] != pl {
		return p.notHere(pl.id)
	}
	var now int64
	if it, ok := pl.table.Lookup(key); ok {
		now = footprint(key, it)
	}
	limit := p.share(pl.spec.Load().quota)
	if pl.ledger.admit(key, now, size, limit) {
		return nil
	}
	limit = max(limit, 0)
	err := sundog.Errorf(sundog.NoSpace, "pool %d holds %d of the %d bytes that its quota leaves to partition %d; %d more were asked for",
		pl.id, pl.ledger.used, limit, p.partition, size-now)
	err.Used, err.Limit = pl.ledger.used, limit
	return err
}

// settleOrKeep gives the room of finished ops back, later where the lock is not
// to be had within the caller's time.
func (p *Partition) settleOrKeep(ctx context.Context, r *reign, tickets []ticket) {
	for _, t := range tickets {
		if t.key != "" {
			if !p.machine.tryLock(ctx) {
				if r.keep(tickets) {
					poke(p.wake)
					return
				}
				break
			}
			p.machine.unlock()
			break
		}
	}
	p.settle(tickets)
}

// settle gives the room of finished ops back.
func (p *Partition) settle(tickets []ticket) {
	locked := false
	for _, t := range tickets {
		p.arenas.Settle(t.promise)
		if t.key == "" {
			continue
		}
		if !locked {
			p.machine.lock <- struct{}{}
			locked = true
		}
		t.pool.ledger.done([]byte(t.key))
	}
	if locked {
		p.machine.unlock()
	}
}

// findPool returns the pool as the log has it. Where the map knows a pool that
// the log does not, the log is brought up to date first, so that a pool can be
// used as soon as its creation has been answered.
func (p *Partition) findPool(ctx context.Context, id sundog.PoolID) (*pool, *sundog.Error) {
	pl, err := p.poolNow(id)
	if err == nil || err.Kind != sundog.Stale {
		return pl, err
	}
	m := p.getMap()
	if m == nil {
		return nil, err
	}
	if known, ok := m.Pool(id); !ok || known.Spec.Consistency != sundog.Strong {
		return nil, err
	}
	if err := p.SyncPools(ctx, m); err != nil {
		e := sundog.AsError(err)
		if e.Kind == sundog.Unknown { // of the pool set; the op itself was not proposed
			e = sundog.Errorf(sundog.Unavailable, "not executed: pool %d is not ready in partition %d: %w", id, p.partition, err)
		}
		return nil, e
	}
	return p.poolNow(id)
}

func (p *Partition) poolNow(id sundog.PoolID) (*pool, *sundog.Error) {
	v := p.machine.guard.current.Load()
	if v == nil {
		return nil, p.notServing()
	}
	if pl := v.pools[id]; pl != nil {
		return pl, nil
	}
	return nil, p.notHere(id)
}

func (p *Partition) notHere(id sundog.PoolID) *sundog.Error {
	e := sundog.Errorf(sundog.Stale, "pool %d is not in partition %d", id, p.partition)
	e.Epoch = p.epoch()
	return e
}

// notServing says why there is nothing to read.
func (p *Partition) notServing() *sundog.Error {
	if err := p.stopReason(); err != nil {
		return sundog.Errorf(sundog.Unavailable, "this replica of partition %d stopped: %w", p.partition, err)
	}
	return sundog.Errorf(sundog.Unavailable, "this replica of partition %d is being restored or closed", p.partition)
}

// checkOp finds the op's pool and says what is wrong with the op itself.
func (p *Partition) checkOp(ctx context.Context, op *rpc.Op) (*pool, *sundog.Error) {
	if err := sundog.CheckKey(op.Key); err != nil {
		return nil, sundog.AsError(err)
	}
	switch {
	case op.Code < rpc.OpPut || op.Code > rpc.OpIncr:
		return nil, sundog.Errorf(sundog.Invalid, "op code %d is not known", op.Code)
	case op.Cond > rpc.CondVersion:
		return nil, sundog.Errorf(sundog.Invalid, "condition %d is not known", op.Cond)
	case op.Code == rpc.OpDelete && op.Cond == rpc.CondAbsent:
		return nil, sundog.Errorf(sundog.Invalid, "a delete that wants the key absent has nothing to do")
	case op.Code != rpc.OpPut && len(op.Value) > 0:
		return nil, sundog.Errorf(sundog.Invalid, "a value of %d bytes where the op takes none", len(op.Value))
	case op.TTL < 0:
		return nil, sundog.Errorf(sundog.Invalid, "time to live %s: use 0 (none) or more", op.TTL)
	}
	pl, err := p.findPool(ctx, op.Pool)
	if err != nil {
		return nil, err
	}
	limit := sundog.PoolSpec{MaxValue: pl.spec.Load().maxValue}
	if err := limit.CheckValue(len(op.Value)); err != nil {
		return nil, sundog.AsError(err)
	}
	return pl, nil
}
