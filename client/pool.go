package client

import (
	"context"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// Pool is a handle on one pool, made by [Client.Pool]. It stays with the pool it
// was made for: once that is deleted every call is NotFound, even when another
// of the same name exists. It is safe for concurrent use and needs no Close.
type Pool struct {
	c    *Client
	id   sundog.PoolID
	name string
}

// Pool finds a pool by name. The error is of kind NotFound when there is none,
// by the newest map that the nodes which keep the catalog have.
func (c *Client) Pool(ctx context.Context, name string) (*Pool, error) {
	if err := sundog.CheckPoolName(name); err != nil {
		return nil, err
	}
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	p, ok := c.view.Load().Map().PoolByName(name)
	if !ok {
		if err := c.newest(ctx); err != nil {
			return nil, err
		}
		if p, ok = c.view.Load().Map().PoolByName(name); !ok {
			return nil, noPool(name)
		}
	}
	return &Pool{c: c, id: p.ID, name: name}, nil
}

func noPool(name string) *sundog.Error {
	return sundog.Errorf(sundog.NotFound, "no pool %q", name)
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// ID returns the pool's id.
func (p *Pool) ID() sundog.PoolID { return p.id }

// Get reads a key; NotFound when it does not exist.
func (p *Pool) Get(ctx context.Context, key []byte) (Item, error) {
	if err := sundog.CheckKey(key); err != nil {
		return Item{}, err
	}
	ctx, leave, err := p.c.enter(ctx)
	if err != nil {
		return Item{}, err
	}
	defer leave()
	p.c.counters.gets.Add(1)
	part, err := p.partition(ctx, key)
	if err != nil {
		return Item{}, err
	}
	var out [1]GetResult
	p.c.run(ctx, route{part: part}, &reading{pool: p, keys: [][]byte{key}, at: []int{0}, out: out[:]})
	return out[0].Item, out[0].Err
}

// Put stores a value, which may be empty, and returns its version. Without
// options it replaces what is there, a lifetime included. Errors that are
// answers: Exists ([IfAbsent]), Conflict and NotFound ([IfVersion]), TooLarge
// and NoSpace (with Used and Limit; the old value stays). key and value must not
// change until Put returns.
func (p *Pool) Put(ctx context.Context, key, value []byte, opts ...PutOption) (sundog.Version, error) {
	p.c.counters.puts.Add(1)
	op, err := p.op(rpc.OpPut, key, value, opts)
	if err != nil {
		return sundog.Version{}, err
	}
	r, _ := p.mutate(ctx, op)
	return r.Version, r.Err
}

// Delete removes a key and returns the version of the removal; NotFound when it
// does not exist. Only [IfVersion] may be given.
func (p *Pool) Delete(ctx context.Context, key []byte, opts ...PutOption) (sundog.Version, error) {
	p.c.counters.deletes.Add(1)
	op, err := p.op(rpc.OpDelete, key, nil, opts)
	if err != nil {
		return sundog.Version{}, err
	}
	r, _ := p.mutate(ctx, op)
	return r.Version, r.Err
}

// Incr adds delta to the counter under key, which begins at 0, and returns the
// new value. A counter's value is 8 bytes, little-endian, signed; a value of
// another length is Invalid.
func (p *Pool) Incr(ctx context.Context, key []byte, delta int64) (int64, sundog.Version, error) {
	p.c.counters.incrs.Add(1)
	op, err := p.op(rpc.OpIncr, key, nil, nil)
	if err != nil {
		return 0, sundog.Version{}, err
	}
	op.Delta = delta
	r, n := p.mutate(ctx, op)
	return n, r.Version, r.Err
}

// op checks what can be checked without the cluster and lays out the operation.
func (p *Pool) op(code rpc.OpCode, key, value []byte, opts []PutOption) (rpc.Op, error) {
	op := rpc.Op{Code: code, Pool: p.id, Key: key, Value: value}
	if err := sundog.CheckKey(key); err != nil {
		return op, err
	}
	var o putOptions
	for _, set := range opts {
		set(&o)
	}
	switch {
	case o.absent && o.versioned:
		return op, sundog.Errorf(sundog.Invalid, "IfAbsent and IfVersion exclude each other")
	case code == rpc.OpDelete && (o.absent || o.ttl != 0):
		return op, sundog.Errorf(sundog.Invalid, "delete takes no IfAbsent and no TTL")
	case o.ttl < 0:
		return op, sundog.Errorf(sundog.Invalid, "TTL %v: use a positive one", o.ttl)
	case o.versioned && o.version.IsZero():
		return op, sundog.Errorf(sundog.Invalid, "IfVersion with no version: use IfAbsent for a key that must not exist")
	}
	if o.ttl > 0 {
		op.TTL = (o.ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	switch {
	case o.absent:
		op.Cond = rpc.CondAbsent
	case o.versioned:
		op.Cond, op.IfVersion = rpc.CondVersion, o.version
	}
	return op, nil
}

// mutate does one operation.
func (p *Pool) mutate(ctx context.Context, op rpc.Op) (PutResult, int64) {
	ctx, leave, err := p.c.enter(ctx)
	if err != nil {
		return PutResult{Err: err}, 0
	}
	defer leave()
	part, err := p.partition(ctx, op.Key)
	if err != nil {
		return PutResult{Err: err}, 0
	}
	if err := p.checkValue(ctx, op); err != nil {
		return PutResult{Err: err}, 0
	}
	var out [1]PutResult
	var ints [1]int64
	p.c.run(ctx, route{part: part}, &mutation{pool: p, ops: []rpc.Op{op}, at: []int{0}, out: out[:], ints: ints[:]})
	return out[0], ints[0]
}

// partition is the key's, once there is a map.
func (p *Pool) partition(ctx context.Context, key []byte) (sundog.Partition, error) {
	if err := p.c.await(ctx); err != nil {
		return 0, err
	}
	return p.c.view.Load().Map().PartitionOf(key), nil
}

// checkValue refuses what the pool's limit does not allow, after a look whether
// the limit has been raised.
func (p *Pool) checkValue(ctx context.Context, op rpc.Op) error {
	if op.Code != rpc.OpPut || p.valueFits(len(op.Value)) == nil {
		return nil
	}
	if err := p.c.refresh(ctx); err != nil {
		p.c.log.Debug("value limit not looked up again", "pool", p.name, "error", err)
	}
	return p.valueFits(len(op.Value))
}

func (p *Pool) valueFits(size int) error {
	pool, ok := p.c.view.Load().Map().Pool(p.id)
	if !ok {
		return nil // the node decides
	}
	return pool.Spec.CheckValue(size)
}

// gone is the error of a pool that the map at hand does not have, though it is
// at least as new as epoch; nil otherwise, and for no pool at all.
func (p *Pool) gone(epoch sundog.Epoch) *sundog.Error {
	if p == nil {
		return nil
	}
	m := p.c.view.Load().Map()
	if _, ok := m.Pool(p.id); ok || m.Epoch < epoch {
		return nil
	}
	return sundog.Errorf(sundog.NotFound, "pool %q was deleted", p.name)
}
