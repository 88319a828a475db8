package strong

import (
	"context"
	"slices"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/rpc"
)

// ticket is the room set aside for one admitted op.
type ticket struct {
	pool    *pool
	key     string // "" when no quota is charged
	promise replication.Promise
}

// candidate is an op on its way through admission.
type candidate struct {
	pool    *pool
	stores  bool
	value   int  // bytes of the value that it may store
	charged bool // against a quota
}

// admit decides which ops may go into the log: results of those that may not get
// their error. It sets room aside for the others.
func (p *Partition) admit(ctx context.Context, ops []rpc.Op, results []rpc.OpResult) []ticket {
	all := make([]candidate, len(ops))
	charged := false
	for i := range ops {
		all[i], results[i].Err = p.check(ctx, &ops[i])
		charged = charged || all[i].charged
	}
	// The lock comes after the checks, which may wait for Apply.
	locked := charged && p.machine.tryLock(ctx)
	if locked {
		defer p.machine.unlock()
	}
	tickets := make([]ticket, 0, len(ops))
	for i, c := range all {
		if results[i].Err != nil || !c.stores {
			continue
		}
		if c.charged && !locked {
			results[i].Err = sundog.Errorf(sundog.Timeout, "not executed: partition %d is busy: %w", p.partition, ctx.Err())
			continue
		}
		t, err := p.reserve(c, ops[i].Key)
		if err != nil {
			results[i].Err = sundog.AsError(err)
			continue
		}
		tickets = append(tickets, t)
	}
	return tickets
}

// check finds the op's pool and says what is wrong with the op itself.
func (p *Partition) check(ctx context.Context, op *rpc.Op) (candidate, *sundog.Error) {
	if err := checkOp(op); err != nil {
		return candidate{}, sundog.AsError(err)
	}
	pl, failed := p.findPool(ctx, op.Pool)
	if failed != nil {
		return candidate{}, failed
	}
	spec := pl.spec.Load()
	if err := (sundog.PoolSpec{MaxValue: spec.maxValue}).CheckValue(len(op.Value)); err != nil {
		return candidate{}, sundog.AsError(err)
	}
	c := candidate{pool: pl}
	switch op.Code {
	case rpc.OpPut:
		c.stores, c.value = true, len(op.Value)
	case rpc.OpIncr:
		c.stores, c.value = true, counterSize
	}
	c.charged = c.stores && spec.quota > 0
	return c, nil
}

func checkOp(op *rpc.Op) error {
	switch {
	case op.Code < rpc.OpPut || op.Code > rpc.OpIncr:
		return sundog.Errorf(sundog.Invalid, "op code %d is not known", op.Code)
	case op.Cond > rpc.CondVersion:
		return sundog.Errorf(sundog.Invalid, "condition %d is not known", op.Cond)
	case op.Code == rpc.OpDelete && op.Cond == rpc.CondAbsent:
		return sundog.Errorf(sundog.Invalid, "a delete that wants the key absent has nothing to do")
	case op.Code != rpc.OpPut && len(op.Value) > 0:
		return sundog.Errorf(sundog.Invalid, "a value of %d bytes where the op takes none", len(op.Value))
	case op.TTL < 0:
		return sundog.Errorf(sundog.Invalid, "time to live %s: use 0 (none) or more", op.TTL)
	}
	return sundog.CheckKey(op.Key)
}

// reserve sets aside the room that the op may need: node memory, and the pool's
// share where it is charged (the machine's lock is held then).
func (p *Partition) reserve(c candidate, key []byte) (ticket, error) {
	promise, err := p.arenas.Promise(c.pool.id, len(key), c.value, p.leaders())
	if err != nil {
		return ticket{}, err
	}
	t := ticket{pool: c.pool, promise: promise}
	if !c.charged {
		return t, nil
	}
	charged, err := p.charge(c.pool, key, int64(len(key)+c.value))
	if err != nil {
		p.arenas.Settle(t.promise)
		return ticket{}, err
	}
	if charged {
		t.key = string(key)
	}
	return t, nil
}

// leaders is how many nodes may be promising the memory of those that they
// share partitions with, about: not more than there are, nor than meet on a node.
func (p *Partition) leaders() int {
	if m := p.getMap(); m != nil {
		return min(len(m.Nodes), maxLeaders)
	}
	return maxLeaders
}

const maxLeaders = 8

// charge counts the op against the pool's share of this partition. It reports
// whether it did: not where the quota was lifted meanwhile.
func (p *Partition) charge(pl *pool, key []byte, size int64) (bool, error) {
	limit := p.share(pl.spec.Load().quota)
	if limit == noShare {
		return false, nil
	}
	var now int64
	if it, ok := pl.table.Lookup(key); ok {
		now = footprint(key, it)
	}
	if pl.ledger.admit(key, now, size, limit) {
		return true, nil
	}
	err := sundog.Errorf(sundog.NoSpace, "pool %d holds %d of the %d bytes that its quota leaves to partition %d; %d more were asked for",
		pl.id, pl.ledger.used, limit, p.partition, size-now)
	err.Used, err.Limit = pl.ledger.used, limit
	return false, err
}

// settleOrKeep gives the room of finished ops back, later where the lock is not
// to be had within the caller's time.
func (p *Partition) settleOrKeep(ctx context.Context, r *reign, tickets []ticket) {
	if anyCharged(tickets) {
		if !p.machine.tryLock(ctx) {
			if r.keep(tickets) {
				poke(p.wake)
				return
			}
			p.machine.lock <- struct{}{}
		}
		defer p.machine.unlock()
	}
	p.giveBack(tickets)
}

// settle gives the room of finished ops back.
func (p *Partition) settle(tickets []ticket) {
	if anyCharged(tickets) {
		p.machine.lock <- struct{}{}
		defer p.machine.unlock()
	}
	p.giveBack(tickets)
}

func (p *Partition) giveBack(tickets []ticket) {
	for _, t := range tickets {
		p.arenas.Settle(t.promise)
		if t.key != "" {
			t.pool.ledger.done([]byte(t.key))
		}
	}
}

func anyCharged(tickets []ticket) bool {
	return slices.ContainsFunc(tickets, func(t ticket) bool { return t.key != "" })
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
