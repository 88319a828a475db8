package strong

import (
	"bytes"
	"context"
	"slices"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/rpc"
)

const (
	// dueRounds bounds how often a read that meets due keys waits for a tick. One
	// does, unless the clock steps back or the key is written again with a time
	// to live that ends at once.
	dueRounds = 4
	// scanLimit is the page of a scan that names none, and the largest; scanBytes
	// of keys and values end a page early.
	scanLimit = 4096
	scanBytes = 1 << 20
	// getBytes bounds the values of one Get's answer, so that it fits a frame:
	// the last one may pass it.
	getBytes = 3 << 20
	pairRoom = 64 // an item's head in a reply
)

// Get reads keys of one pool, each linearizably and all behind one barrier; see
// replication.Engine. Errors: NotFound; Invalid for a key; Stale (the pool is
// not here); NotOwner with the leader where known; Unavailable, Timeout, Closed.
// Of an answer above 3 MiB the rest is Unavailable: ask for those keys again.
func (p *Partition) Get(ctx context.Context, pool sundog.PoolID, keys [][]byte) []rpc.GetResult {
	results := make([]rpc.GetResult, len(keys))
	era, err := p.readable(ctx, pool)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	left := make([]int, len(keys))
	for i := range left {
		left[i] = i
	}
	for range dueRounds {
		if left = p.getOnce(era, pool, keys, results, left); len(left) == 0 {
			return results
		}
		if err := p.tick(ctx); err != nil {
			e := asRead(p.located(err))
			for _, i := range left {
				results[i] = rpc.GetResult{Err: e}
			}
			return results
		}
	}
	for _, i := range left {
		results[i] = rpc.GetResult{Err: sundog.Errorf(sundog.Unavailable, "the key is due and the partition's time does not move on; try again")}
	}
	return results
}

// getOnce fills the results of keys[i] for each i in want and returns those
// whose key is due but was not removed yet: only the log may say that it is gone.
func (p *Partition) getOnce(era uint64, id sundog.PoolID, keys [][]byte, results []rpc.GetResult, want []int) (due []int) {
	now := p.now()
	p.machine.guard.read(func(v *view) {
		pl, err := p.poolIn(v, era, id)
		size := 0
		for _, i := range want {
			switch {
			case err != nil:
				results[i].Err = err
				continue
			case size > getBytes:
				results[i].Err = sundog.Errorf(sundog.Unavailable, "not read: the answer is full at %d bytes; ask for fewer keys at once", size)
				continue
			}
			results[i] = pl.get(keys[i])
			size += pairRoom + len(results[i].Item.Value)
			if isDue(results[i].Item.Deadline, now) {
				due = append(due, i)
			}
		}
	})
	return due
}

func (p *pool) get(key []byte) rpc.GetResult {
	if err := sundog.CheckKey(key); err != nil {
		return rpc.GetResult{Err: sundog.AsError(err)}
	}
	it, ok := p.table.Get(key, nil)
	if !ok {
		return rpc.GetResult{Err: notFound()}
	}
	return rpc.GetResult{Item: rpc.Item{Version: it.Version, Deadline: it.Deadline, Value: it.Value}}
}

func isDue(deadline, now int64) bool { return deadline != noDeadline && deadline <= now }

// readable returns an era in which what is applied here covers everything that
// was acknowledged before the call: an entry that was made after the call began
// has been applied, by the leader. It also brings in a pool that the map has and
// the log has not.
//
// The era ends with a restore. A group that makes its raft instance anew goes
// back to its own last snapshot for a while; a read that had its barrier before
// must not look at that.
func (p *Partition) readable(ctx context.Context, pool sundog.PoolID) (era uint64, err *sundog.Error) {
	era = p.machine.restores.Load()
	if mutantNoBarrier {
		return era, nil
	}
	if err := p.group.Barrier(ctx); err != nil {
		return 0, asRead(p.located(err))
	}
	_, err = p.findPool(ctx, pool)
	return era, err
}

// poolIn finds the pool for a read of that era. The caller is inside the guard,
// so a restore that begins after the comparison waits with closing the tables.
func (p *Partition) poolIn(v *view, era uint64, id sundog.PoolID) (*pool, *sundog.Error) {
	if v == nil || p.machine.restores.Load() != era {
		return nil, p.notServing()
	}
	if pl := v.pools[id]; pl != nil {
		return pl, nil
	}
	return nil, p.notHere(id)
}

// asRead words an error of the group for a read: it has no unknown outcome.
func asRead(err error) *sundog.Error {
	e := sundog.AsError(err)
	if e.Kind == sundog.Unknown {
		return sundog.Errorf(sundog.Unavailable, "%w", err)
	}
	return e
}

// Scan returns one page of a pool's keys in this partition, in the table's own
// order. A key that is there from the first page's call to the last one's is
// returned at least once; one that comes or goes meanwhile may or may not be.
// Each page is read behind a barrier of its own. A cursor of another replica, or
// from before a restart, begins anew. Errors as of Get.
func (p *Partition) Scan(ctx context.Context, req rpc.ScanRequest) (rpc.ScanReply, error) {
	era, failed := p.readable(ctx, req.Pool)
	if failed != nil {
		return rpc.ScanReply{}, failed
	}
	if p.machine.due.Load() <= p.now() {
		if err := p.tick(ctx); err != nil {
			return rpc.ScanReply{}, asRead(p.located(err))
		}
	}
	limit := scanLimit
	if req.Limit > 0 {
		limit = min(req.Limit, scanLimit)
	}
	var reply rpc.ScanReply
	p.machine.guard.read(func(v *view) {
		var pl *pool
		if pl, failed = p.poolIn(v, era, req.Pool); failed == nil {
			reply = pl.scan(req, limit)
		}
	})
	if failed != nil {
		return rpc.ScanReply{}, failed
	}
	return reply, nil
}

func (p *pool) scan(req rpc.ScanRequest, limit int) (reply rpc.ScanReply) {
	size := 0
	reply.Next = p.table.Scan(req.Cursor, limit, func(key []byte, it table.Item) bool {
		if !bytes.HasPrefix(key, req.Prefix) {
			return true
		}
		item := rpc.ScanItem{Key: slices.Clone(key), Version: it.Version, Deadline: it.Deadline}
		if !req.KeysOnly {
			item.Value = slices.Clone(it.Value)
		}
		reply.Items = append(reply.Items, item)
		size += pairRoom + len(item.Key) + len(item.Value)
		return size < scanBytes
	})
	return reply
}

// Check proposes a check of the pool; see replication.Checker. Errors as of Mutate.
func (p *Partition) Check(ctx context.Context, pool sundog.PoolID) (replication.CheckID, error) {
	if p.reign.Load() == nil {
		return 0, p.notLeading()
	}
	if _, err := p.findPool(ctx, pool); err != nil {
		return 0, err
	}
	id := replication.CheckID(newID())
	if _, err := p.group.Propose(ctx, appendCheck(nil, id, pool)); err != nil {
		return 0, p.located(err)
	}
	return id, nil
}

// CheckResult returns this replica's sum; see replication.Checker.
func (p *Partition) CheckResult(id replication.CheckID) (replication.CheckSum, bool) {
	return p.sums.get(id)
}
