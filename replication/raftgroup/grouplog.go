package raftgroup

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
	"go.etcd.io/bbolt"
)

// The file has one bucket for each group's log ('L' and the group id), records
// under their big-endian index, and one for its stable state ('S').
func metaBucket() []byte { return []byte("M") }

func groupBucket(kind byte, id GroupID) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, uint32(id))
}

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// extent is what a group's log holds: records first to last without gaps, both 0
// when there are none.
type extent struct {
	first, last uint64
	bytes       int64 // of stored records
}

// GroupLog is one group's raft.LogStore (monotonic) and raft.StableStore.
// Reading is safe from any goroutine; raft writes from one at a time.
type GroupLog struct {
	store *Store
	id    GroupID

	next extent // the committer's: with the running transaction

	mu     sync.RWMutex // guards what follows
	cur    extent       // as synced
	stable map[string][]byte
	// voteTerm waits for the candidate that raft sets next (see Set).
	voteTerm []byte
	// covered is the newest snapshot: GetLog answers for its index also when the
	// record is gone, so that raft can compare terms right behind it.
	coveredIndex, coveredTerm uint64
	// onStall, if set, is called when StoreLogs gave up on a hung disk.
	onStall func()
	// onGrow, if set, is called after each append with the bytes in the log.
	onGrow func(bytes int64)

	loadOnce sync.Once
	loadErr  error
}

// Group returns the group's part of the store, the same one for each call.
func (s *Store) Group(id GroupID) *GroupLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[id]
	if g == nil {
		g = &GroupLog{store: s, id: id, stable: make(map[string][]byte)}
		s.groups[id] = g
	}
	return g
}

// load reads the extent and the stable state, once.
func (g *GroupLog) load() error {
	g.loadOnce.Do(func() {
		g.loadErr = g.store.db.View(func(tx *bbolt.Tx) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			if b := tx.Bucket(groupBucket('S', g.id)); b != nil {
				if err := b.ForEach(func(k, v []byte) error {
					g.stable[string(k)] = bytes.Clone(v)
					return nil
				}); err != nil {
					return err
				}
			}
			b := tx.Bucket(groupBucket('L', g.id))
			if b == nil {
				return nil
			}
			ext, err := scanExtent(b)
			g.cur, g.next = ext, ext
			return err
		})
	})
	return g.loadErr
}

func scanExtent(b *bbolt.Bucket) (extent, error) {
	var e extent
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(k) != 8 {
			return e, sundog.Errorf(sundog.Corrupt, "raft log: key of %d bytes", len(k))
		}
		index := binary.BigEndian.Uint64(k)
		if e.first == 0 {
			e.first = index
		} else if index != e.last+1 {
			return e, sundog.Errorf(sundog.Corrupt, "raft log: record %d follows %d", index, e.last)
		}
		e.last = index
		e.bytes += int64(len(v))
	}
	return e, nil
}

// IsMonotonic tells raft that indexes in the log have no gaps, so that it clears
// the log after a snapshot was installed.
func (g *GroupLog) IsMonotonic() bool { return true }

func (g *GroupLog) extent() (extent, error) {
	if err := g.load(); err != nil {
		return extent{}, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.cur, nil
}

// FirstIndex returns the first index stored, 0 for none.
func (g *GroupLog) FirstIndex() (uint64, error) {
	e, err := g.extent()
	return e.first, err
}

// LastIndex returns the last index stored, 0 for none.
func (g *GroupLog) LastIndex() (uint64, error) {
	e, err := g.extent()
	return e.last, err
}

// Bytes returns the size of the stored records.
func (g *GroupLog) Bytes() int64 {
	e, _ := g.extent() // an unreadable log fails at open
	return e.bytes
}

// GetLog reads one entry; its Data must not be changed. raft.ErrLogNotFound when
// it is not there.
func (g *GroupLog) GetLog(index uint64, l *raft.Log) error {
	e, err := g.extent()
	if err != nil {
		return err
	}
	if index < e.first || index > e.last || e.first == 0 {
		return g.snapshotEntry(index, l)
	}
	if g.store.cache.get(g.id, index, l) {
		return nil
	}
	var record []byte
	err = g.store.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(groupBucket('L', g.id)); b != nil {
			record = bytes.Clone(b.Get(indexKey(index)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if record == nil {
		return g.snapshotEntry(index, l)
	}
	return openRecord(record, index, l)
}

// snapshotEntry stands in for the last entry that the newest snapshot covers.
// Without it a follower whose uncommitted tail begins right behind its snapshot
// could not tell that the entry before the tail matches, and raft would install
// snapshots for ever (hashicorp/raft issue 697). It is never applied or sent:
// raft uses only its term.
func (g *GroupLog) snapshotEntry(index uint64, l *raft.Log) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if index == 0 || index != g.coveredIndex {
		return raft.ErrLogNotFound
	}
	*l = raft.Log{Index: index, Term: g.coveredTerm, Type: raft.LogNoop}
	return nil
}

// watch sets the callbacks after each append and each stall.
func (g *GroupLog) watch(grow func(bytes int64), stall func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onGrow, g.onStall = grow, stall
}

// StoreLog is StoreLogs of one entry.
func (g *GroupLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends contiguous entries and returns when they are synced. What
// the log held at or above the first of them is cancelled in the same
// transaction. After an error they may be on disk or not.
func (g *GroupLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	if err := g.load(); err != nil {
		return err
	}
	op, err := g.appendOp(logs)
	if err != nil {
		return err
	}
	g.store.submit(op)
	err = g.await(op)
	g.mu.RLock()
	grow, bytes := g.onGrow, g.cur.bytes
	g.mu.RUnlock()
	if err == nil && grow != nil {
		grow(bytes)
	}
	return err
}

// appendOp encodes the entries on the caller's side, beside the committer.
func (g *GroupLog) appendOp(logs []*raft.Log) (*storeOp, error) {
	records := make([][]byte, len(logs))
	total := 0
	for i, l := range logs {
		if l.Index != logs[0].Index+uint64(i) || l.Index == 0 {
			return nil, sundog.Errorf(sundog.Invalid, "raft log: entry %d cannot follow %d", l.Index, logs[0].Index)
		}
		records[i] = sealRecord(l)
		total += len(records[i])
	}
	if m := g.store.cfg.Metrics; m != nil {
		m.commitBytes.Add(float64(total))
	}
	first, last := logs[0].Index, logs[len(logs)-1].Index
	var after extent
	return &storeOp{
		group: g, bytes: total,
		apply: func(tx *bbolt.Tx) (bool, error) {
			b, err := tx.CreateBucketIfNotExists(groupBucket('L', g.id))
			if err != nil {
				return false, err
			}
			b.FillPercent = fillPercent
			if before := g.ends(); before != 0 && first > before+1 {
				return false, sundog.Errorf(sundog.Invalid, "raft log: entry %d would leave a gap after %d", first, before)
			}
			if g.next.last >= first {
				if err := g.dropSuffix(b, first); err != nil {
					return false, err
				}
			}
			for i, r := range records {
				if err := b.Put(indexKey(first+uint64(i)), r); err != nil {
					return false, err
				}
			}
			if g.next.first == 0 {
				g.next.first = first
			}
			g.next.last = last
			g.next.bytes += int64(total)
			after = g.next
			return false, nil
		},
		published: func() {
			// In this order: a reader that sees the new extent must not be given an
			// entry that these have replaced.
			g.store.cache.add(g.id, logs)
			g.publish(after)
		},
	}, nil
}

// ends is the index behind which the committer may append: that of the last
// record, or of the newest snapshot when there are none; 0 for any.
func (g *GroupLog) ends() uint64 {
	if g.next.first != 0 {
		return g.next.last
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.coveredIndex
}

// publish shows readers the log as the committed operation left it.
func (g *GroupLog) publish(e extent) {
	g.mu.Lock()
	g.cur = e
	g.mu.Unlock()
}

// await waits for the operation, as long as it makes progress within StallAfter.
// When it gives up, the operation may still be carried out.
func (g *GroupLog) await(op *storeOp) error {
	after := g.store.cfg.StallAfter
	if after < 0 {
		return <-op.done
	}
	t := time.NewTimer(after)
	defer t.Stop()
	for steps := int64(0); ; {
		select {
		case err := <-op.done:
			return err
		case <-t.C:
		}
		now := op.steps.Load()
		if now == steps {
			break
		}
		steps = now
		t.Reset(after)
	}
	g.mu.RLock()
	stall := g.onStall
	g.mu.RUnlock()
	if stall != nil {
		stall()
	}
	return sundog.Errorf(sundog.Unknown, "raft log: the disk has not answered for %s", after)
}
