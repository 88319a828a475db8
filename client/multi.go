package client

import (
	"context"
	"slices"
	"sync"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// Bounds of a batch call.
const (
	// frameBytes is where a frame of several keys ends; one larger pair goes alone.
	frameBytes = 1 << 20
	// frameKeys is the most keys in one frame.
	frameKeys = 4096
	// framesAtOnce bounds the frames of one batch call under way.
	framesAtOnce = 64
)

// MultiGet reads many keys, all partitions in parallel, and returns one result a
// key in the order of keys: a failure of one owner is the error of its keys
// alone. It is not a snapshot: each key is read by itself.
func (p *Pool) MultiGet(ctx context.Context, keys [][]byte) []GetResult {
	p.c.counters.gets.Add(uint64(len(keys)))
	out := make([]GetResult, len(keys))
	b := batch{pool: p, fail: func(i int, err error) { out[i].Err = err }}
	b.do(ctx, len(keys), func(i int) ([]byte, int, error) {
		return keys[i], len(keys[i]), sundog.CheckKey(keys[i])
	}, func(at []int) exchange {
		r := &reading{pool: p, at: at, out: out, keys: make([][]byte, len(at))}
		for j, i := range at {
			r.keys[j] = keys[i]
		}
		return r
	})
	return out
}

// MultiPut stores many pairs, all partitions in parallel, and returns one result
// a pair in the order of pairs. Each pair is a Put by itself, with the same
// options; there is no atomicity across pairs, and no order between two pairs of
// one key. Pairs must not change until MultiPut returns.
func (p *Pool) MultiPut(ctx context.Context, pairs []Pair, opts ...PutOption) []PutResult {
	p.c.counters.puts.Add(uint64(len(pairs)))
	return p.mutateAll(ctx, len(pairs), func(i int) (rpc.Op, error) {
		return p.op(rpc.OpPut, pairs[i].Key, pairs[i].Value, opts)
	})
}

// MultiDelete removes many keys, all partitions in parallel, and returns one
// result a key in the order of keys, NotFound for those that did not exist.
func (p *Pool) MultiDelete(ctx context.Context, keys [][]byte) []PutResult {
	p.c.counters.deletes.Add(uint64(len(keys)))
	return p.mutateAll(ctx, len(keys), func(i int) (rpc.Op, error) {
		return p.op(rpc.OpDelete, keys[i], nil, nil)
	})
}

func (p *Pool) mutateAll(ctx context.Context, n int, op func(int) (rpc.Op, error)) []PutResult {
	out := make([]PutResult, n)
	ops := make([]rpc.Op, n)
	b := batch{pool: p, fail: func(i int, err error) { out[i].Err = err }}
	b.do(ctx, n, func(i int) (_ []byte, size int, err error) {
		if ops[i], err = op(i); err == nil && b.ready {
			err = p.checkValue(ctx, ops[i])
		}
		return ops[i].Key, len(ops[i].Key) + len(ops[i].Value), err
	}, func(at []int) exchange {
		m := &mutation{pool: p, at: at, out: out, ops: make([]rpc.Op, len(at))}
		for j, i := range at {
			m.ops[j] = ops[i]
		}
		return m
	})
	return out
}

// batch does a call of many keys.
type batch struct {
	pool  *Pool
	ready bool // there is a map
	fail  func(i int, err error)
}

// do groups the items 0 to n-1 by partition, cuts the groups into frames and
// runs these in parallel. item gives an item's key, its size in a frame, and
// why it cannot be sent; frame makes the exchange of some items.
func (b *batch) do(ctx context.Context, n int, item func(int) (key []byte, size int, err error), frame func(at []int) exchange) {
	c := b.pool.c
	ctx, leave, err := c.enter(ctx)
	if err == nil {
		defer leave()
		err = c.await(ctx)
	}
	if err != nil {
		for i := range n {
			b.fail(i, err)
		}
		return
	}
	b.ready = true
	m := c.view.Load().Map()
	type group struct {
		at    []int
		bytes int
	}
	groups := make(map[sundog.Partition]*group)
	var work sync.WaitGroup
	slots := make(chan struct{}, framesAtOnce)
	send := func(part sundog.Partition, at []int) {
		slots <- struct{}{}
		work.Go(func() {
			c.run(ctx, route{part: part}, frame(at))
			<-slots
		})
	}
	for i := range n {
		key, size, err := item(i)
		if err != nil {
			b.fail(i, err)
			continue
		}
		part := m.PartitionOf(key)
		g := groups[part]
		if g == nil {
			g = &group{}
			groups[part] = g
		}
		if len(g.at) > 0 && (g.bytes+size > frameBytes || len(g.at) == frameKeys) {
			send(part, g.at)
			*g = group{}
		}
		g.at, g.bytes = append(g.at, i), g.bytes+size
	}
	parts := make([]sundog.Partition, 0, len(groups))
	for part := range groups {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	for _, part := range parts {
		send(part, groups[part].at)
	}
	work.Wait()
}
