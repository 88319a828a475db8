package node

import (
	"context"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

const (
	// maxScanPage bounds the items of one page whatever the request asks for.
	maxScanPage = 10_000
	// answerBytes is where an answer of several partitions is full; an engine
	// bounds its own part alike, so that the whole fits a frame.
	answerBytes = 3 << 20
	// maxParts bounds the keys or ops of one request, so that the answer fits a
	// frame whatever becomes of each: see [fitText].
	maxParts = 8192
	// partsAtOnce bounds the partitions of one request that are worked on at
	// once, and with answerBytes the memory that a hostile request can take.
	partsAtOnce = 8
)

// dataService answers the data methods from the replicas hosted here.
type dataService struct {
	self    sundog.NodeID
	atlas   *atlas
	engines *replication.Engines
}

// pool finds the pool of a request that was routed by a map of epoch seen.
// Stale: the request's map is older, and the pool may be gone since; NotFound:
// there is none in the map that the request used, or in a newer one.
func (d *dataService) pool(id sundog.PoolID, seen sundog.Epoch) (*ring.Map, ring.Pool, *sundog.Error) {
	m := d.atlas.Map()
	if m == nil {
		return nil, ring.Pool{}, sundog.Errorf(sundog.Unavailable, "this node is not in a cluster yet")
	}
	if p, ok := m.Pool(id); ok {
		if seen >= p.Created {
			return m, p, nil
		}
		return nil, p, d.told(sundog.Errorf(sundog.Stale, "the request's map (epoch %d) is older than pool %q", seen, p.Name), m)
	}
	if seen < m.Epoch {
		return nil, ring.Pool{}, d.told(sundog.Errorf(sundog.Stale, "pool %d is not in the map of epoch %d; the request's is of epoch %d", id, m.Epoch, seen), m)
	}
	return nil, ring.Pool{}, sundog.Errorf(sundog.NotFound, "no pool with id %d", id)
}

// engine finds the replica of a partition here.
func (d *dataService) engine(m *ring.Map, pool ring.Pool, p sundog.Partition) (replication.Engine, *sundog.Error) {
	e, err := d.engines.Find(pool.Spec.Consistency, p)
	if err == nil {
		return e, nil
	}
	if m.Owners(p).Index(d.self) >= 0 {
		return nil, sundog.Errorf(sundog.Unavailable, "the replica of partition %d on this node is starting", p)
	}
	return nil, d.told(sundog.AsError(err), m)
}

// told returns the error with the map's epoch where its receiver needs one.
func (d *dataService) told(err *sundog.Error, m *ring.Map) *sundog.Error {
	if err == nil || err.Epoch != 0 || err.Kind != sundog.NotOwner && err.Kind != sundog.Stale {
		return err
	}
	e := *err
	e.Epoch = m.Epoch
	return &e
}

func (d *dataService) get(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	r, err := rpc.DecodeGet(req.Body)
	if err != nil {
		return nil, err
	}
	m, pool, perr := d.pool(r.Pool, req.Epoch)
	if perr != nil {
		return nil, perr
	}
	if err := sundog.CheckKey(r.Key); err != nil {
		return nil, err
	}
	engine, perr := d.engine(m, pool, m.PartitionOf(r.Key))
	if perr != nil {
		return nil, perr
	}
	result := engine.Get(ctx, r.Pool, [][]byte{r.Key})[0]
	if result.Err != nil {
		return nil, d.told(result.Err, m)
	}
	return rpc.EncodeItem(result.Item), nil
}

func (d *dataService) multiGet(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	r, err := rpc.DecodeMultiGet(req.Body)
	if err != nil {
		return nil, err
	}
	if err := checkParts("keys", len(r.Keys)); err != nil {
		return nil, err
	}
	results := d.read(ctx, r.Pool, r.Keys, req.Epoch)
	text := fitText(len(results), answerBytes)
	for i := range results {
		results[i].Err = shorten(results[i].Err, text)
	}
	return rpc.EncodeGetResults(results), nil
}

// read reads keys of any partitions, each partition by itself.
func (d *dataService) read(ctx context.Context, id sundog.PoolID, keys [][]byte, seen sundog.Epoch) []rpc.GetResult {
	results := make([]rpc.GetResult, len(keys))
	m, pool, perr := d.pool(id, seen)
	if perr != nil {
		for i := range results {
			results[i].Err = perr
		}
		return results
	}
	split := make(split)
	for i, key := range keys {
		if err := sundog.CheckKey(key); err != nil {
			results[i].Err = sundog.AsError(err)
			continue
		}
		split.add(m.PartitionOf(key), i)
	}
	var size atomic.Int64 // of the values read so far
	split.each(func(p sundog.Partition, at []int) {
		engine, err := d.engine(m, pool, p)
		if size.Load() > answerBytes {
			err = answerFull()
		}
		if err != nil {
			for _, i := range at {
				results[i].Err = err
			}
			return
		}
		for j, r := range engine.Get(ctx, id, pick(keys, at)) {
			r.Err = d.told(r.Err, m)
			results[at[j]] = r
			size.Add(int64(len(r.Item.Value)))
		}
	})
	if size.Load() > answerBytes {
		cutAnswer(results)
	}
	return results
}

// cutAnswer takes values out of an answer that would not fit a frame. The first
// one always stays, so that asking again for the rest makes progress.
func cutAnswer(results []rpc.GetResult) {
	size := 0
	for i := range results {
		n := len(results[i].Item.Value)
		if size > 0 && size+n > answerBytes {
			results[i] = rpc.GetResult{Err: answerFull()}
			continue
		}
		size += n
	}
}

func answerFull() *sundog.Error {
	return sundog.Errorf(sundog.Unavailable, "not read: the answer is full at %d bytes; ask for fewer keys at once", answerBytes)
}

func (d *dataService) mutate(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	ops, err := rpc.DecodeMutate(req.Body)
	if err != nil {
		return nil, err
	}
	if err := checkParts("ops", len(ops)); err != nil {
		return nil, err
	}
	results := d.write(ctx, ops, req.Epoch)
	text := fitText(len(results), 0)
	for i := range results {
		results[i].Err = shorten(results[i].Err, text)
	}
	return rpc.EncodeResults(results), nil
}

// write executes ops of any pools and partitions, each partition by itself; the
// ops of one partition keep their order.
func (d *dataService) write(ctx context.Context, ops []rpc.Op, seen sundog.Epoch) []rpc.OpResult {
	if len(ops) == 1 {
		return d.writeOne(ctx, ops, seen)
	}
	results := make([]rpc.OpResult, len(ops))
	split := make(split)
	pools := map[sundog.PoolID]ring.Pool{}
	var m *ring.Map
	for i := range ops {
		pool, ok := pools[ops[i].Pool]
		if !ok {
			newer, found, err := d.pool(ops[i].Pool, seen)
			if err != nil {
				results[i].Err = err
				continue
			}
			m, pool = newer, found
			pools[pool.ID] = pool
		}
		if err := checkOp(&ops[i], pool); err != nil {
			results[i].Err = err
			continue
		}
		split.add(m.PartitionOf(ops[i].Key), i)
	}
	split.each(func(p sundog.Partition, at []int) {
		// All consistencies have one engine a partition in this release, so the
		// first op's pool finds it for all.
		engine, err := d.engine(m, pools[ops[at[0]].Pool], p)
		if err != nil {
			for _, i := range at {
				results[i].Err = err
			}
			return
		}
		for j, r := range engine.Mutate(ctx, pick(ops, at)) {
			r.Err = d.told(r.Err, m)
			results[at[j]] = r
		}
	})
	return results
}

// writeOne is write for the most frequent request, a single op.
func (d *dataService) writeOne(ctx context.Context, ops []rpc.Op, seen sundog.Epoch) []rpc.OpResult {
	m, pool, err := d.pool(ops[0].Pool, seen)
	if err == nil {
		err = checkOp(&ops[0], pool)
	}
	var engine replication.Engine
	if err == nil {
		engine, err = d.engine(m, pool, m.PartitionOf(ops[0].Key))
	}
	if err != nil {
		return []rpc.OpResult{{Err: err}}
	}
	results := engine.Mutate(ctx, ops)
	results[0].Err = d.told(results[0].Err, m)
	return results
}

func checkOp(op *rpc.Op, pool ring.Pool) *sundog.Error {
	if err := sundog.CheckKey(op.Key); err != nil {
		return sundog.AsError(err)
	}
	if err := pool.Spec.CheckValue(len(op.Value)); err != nil {
		return sundog.AsError(err)
	}
	return nil
}

func (d *dataService) scan(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	r, err := rpc.DecodeScan(req.Body)
	if err != nil {
		return nil, err
	}
	m, pool, perr := d.pool(r.Pool, req.Epoch)
	if perr != nil {
		return nil, perr
	}
	if int(r.Partition) >= m.Partitions {
		return nil, sundog.Errorf(sundog.Invalid, "partition %d: this cluster has %d", r.Partition, m.Partitions)
	}
	if r.Limit <= 0 || r.Limit > maxScanPage {
		r.Limit = maxScanPage
	}
	engine, perr := d.engine(m, pool, r.Partition)
	if perr != nil {
		return nil, perr
	}
	reply, err := engine.Scan(ctx, r)
	if err != nil {
		return nil, d.told(sundog.AsError(err), m)
	}
	return rpc.EncodeScanReply(reply), nil
}

// split sorts the indexes of a request's parts by partition.
type split map[sundog.Partition][]int

func (s split) add(p sundog.Partition, i int) { s[p] = append(s[p], i) }

// each runs fn for every partition, some at once where there are several, and
// returns when all have returned.
func (s split) each(fn func(p sundog.Partition, at []int)) {
	if len(s) == 1 {
		for p, at := range s {
			fn(p, at)
		}
		return
	}
	parts := make([]sundog.Partition, 0, len(s))
	for p := range s {
		parts = append(parts, p)
	}
	var panicked atomic.Pointer[any]
	inParallel(partsAtOnce, len(parts), func(i int) {
		// A panic belongs to the request, which rpc isolates; on a goroutine of
		// its own it would end the process.
		defer func() {
			if v := recover(); v != nil {
				panicked.Store(&v)
			}
		}()
		fn(parts[i], s[parts[i]])
	})
	if v := panicked.Load(); v != nil {
		panic(*v)
	}
}

// pick returns the elements at the given indexes; all of them uncopied.
func pick[T any](from []T, at []int) []T {
	if len(at) == len(from) {
		return from
	}
	some := make([]T, len(at))
	for j, i := range at {
		some[j] = from[i]
	}
	return some
}
