package raftgroup

import (
	"go.etcd.io/bbolt"
)

// Steps of a truncation: at most this much in one transaction, so that other
// groups' operations wait for one step only.
const (
	truncateRecords = 2048
	truncateBytes   = 1 << 20
)

// dropSuffix deletes all records at or above index, in the running transaction.
func (g *GroupLog) dropSuffix(b *bbolt.Bucket, index uint64) error {
	for i := g.next.last; i >= max(index, g.next.first) && i > 0; i-- {
		key := indexKey(i)
		g.next.bytes -= int64(len(b.Get(key)))
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	if index <= g.next.first {
		g.next = extent{}
	} else {
		g.next.last = index - 1
	}
	return nil
}

// dropSuffixStep deletes one step of records from the end, not below index; more
// tells that some are left.
func (g *GroupLog) dropSuffixStep(b *bbolt.Bucket, index uint64) (more bool, err error) {
	index = max(index, g.next.first)
	step, size := g.next.last+1, 0
	for step > index && g.next.last+1-step < truncateRecords && size < truncateBytes {
		step--
		size += len(b.Get(indexKey(step)))
	}
	return step > index, g.dropSuffix(b, step)
}

// DeleteRange deletes entries lo to hi from either end of the log (raft asks for
// nothing else); at the upper end everything from lo on goes, whatever hi is. It
// goes in steps, each one a synced transaction that leaves a log without gaps,
// and returns when all are done.
//
// What reaches the end of the log goes from the end downwards, also when it is
// all of the log: whatever a crash leaves then still begins where the snapshot
// before it ends.
func (g *GroupLog) DeleteRange(lo, hi uint64) error {
	if err := g.load(); err != nil {
		return err
	}
	var after extent
	op := &storeOp{
		group: g,
		apply: func(tx *bbolt.Tx) (more bool, err error) {
			defer func() { after = g.next }()
			b := tx.Bucket(groupBucket('L', g.id))
			if b == nil || g.next.first == 0 || hi < g.next.first || lo > g.next.last {
				return false, nil
			}
			if lo > g.next.first || hi >= g.next.last {
				return g.dropSuffixStep(b, lo)
			}
			return g.dropPrefix(b, hi)
		},
		published: func() {
			g.publish(after)
			first := after.first
			if first == 0 {
				first = ^uint64(0)
			}
			g.store.cache.truncate(g.id, first, after.last)
		},
	}
	g.store.submit(op)
	return g.await(op)
}

// dropPrefix deletes one step of records up to hi, which is below the last; more
// tells that some are left.
func (g *GroupLog) dropPrefix(b *bbolt.Bucket, hi uint64) (more bool, err error) {
	records, size := 0, int64(0)
	for i := g.next.first; i <= hi; i++ {
		if records >= truncateRecords || size >= truncateBytes {
			more = true
			break
		}
		key := indexKey(i)
		n := int64(len(b.Get(key)))
		if err := b.Delete(key); err != nil {
			return false, err
		}
		records++
		size += n
		g.next.first, g.next.bytes = i+1, g.next.bytes-n
	}
	return more, nil
}

// trailing returns how many of the newest records fit into a number of bytes, at
// least 1.
func (g *GroupLog) trailing(limit int64) uint64 {
	n := uint64(0)
	err := g.store.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(groupBucket('L', g.id))
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			if limit -= int64(len(v)); limit < 0 {
				return nil
			}
			n++
		}
		return nil
	})
	if err != nil {
		return 1
	}
	return max(n, 1)
}
