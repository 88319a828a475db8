package raftgroup

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// StoreConfig says how a store behaves.
type StoreConfig struct {
	Logger  *slog.Logger // nil: discard
	Metrics *Metrics     // nil: none
	// Fatal is called once when a write or sync of the file failed. What is on
	// disk is then unknown (a failed fsync drops the dirty pages it could not
	// write), so it must end the process: every later operation fails, and raft
	// panics where it cannot keep its term. nil panics.
	Fatal func(error)
	// CacheBytes bounds the newest entries kept in memory, all groups together;
	// 0 is 64 MiB.
	CacheBytes int64
	// StallAfter is the age of an unfinished commit at which the disk counts as
	// hung: StoreLogs returns an error (its outcome is unknown), so that a leader
	// steps down, and the groups' transports send no requests until commits have
	// been quick for as long again. 0 is 2 s; negative never.
	StallAfter time.Duration
	// Openings is how often the file is known to have been opened; it counts
	// them itself ([Store.Openings]). A file that counts fewer is an old copy, or
	// was emptied: without what it has forgotten this node must not vote, so it is
	// Corrupt. 0 takes any, and makes a new one where there is none.
	Openings uint64
}

const (
	defaultCacheBytes = 64 << 20
	defaultStallAfter = 2 * time.Second
	lockTimeout       = time.Second
	// closeGrace is the age of a commit at which nobody waits for it any more
	// in order to close, closePoll the least time between two looks at it.
	closeGrace = 5 * time.Second
	closePoll  = 50 * time.Millisecond
	// maxCommitBytes bounds one transaction; more waits for the next.
	maxCommitBytes = 8 << 20
	// fillPercent of a page is used when appending splits it: keys only rise.
	fillPercent = 0.95
)

// Store is the log and stable store of all groups of a node: one bbolt file
// with one committer. Operations of all groups that wait at the same time share
// one transaction and its sync, and each is answered only after that sync.
type Store struct {
	db    *bbolt.DB
	cfg   StoreConfig
	cache *logCache
	hooks storeHooks
	// snapshots holds a token for each snapshot that may be written at once.
	snapshots chan struct{}

	openings  uint64 // set once, by checkFormat
	commits   atomic.Uint64
	started   atomic.Int64 // Unix nanoseconds of the running commit's start, 0 when idle
	sickUntil atomic.Int64 // Unix nanoseconds
	done      chan struct{}

	mu      sync.Mutex // guards what follows
	queue   []*storeOp
	wake    chan struct{} // one token: the queue is not empty, or closed
	closed  bool
	failure error
	groups  map[GroupID]*GroupLog
}

// storeHooks are called by the committer around each commit; tests set them.
type storeHooks struct {
	beforeCommit, afterCommit func()
}

// storeOp is one waiting operation. The committer calls apply in its
// transaction, and published after the commit.
type storeOp struct {
	group     *GroupLog
	bytes     int
	apply     func(tx *bbolt.Tx) (again bool, err error)
	published func()
	steps     atomic.Int64 // done, of those that are not the last
	err       error
	done      chan error
}

// OpenStore opens or makes the file at path. Kinds: Conflict when another
// process has it open, Corrupt when it is not a store, else Unavailable.
func OpenStore(path string, cfg StoreConfig) (*Store, error) {
	return openStore(path, cfg, storeHooks{})
}

func openStore(path string, cfg StoreConfig, hooks storeHooks) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&cfg.CacheBytes, defaultCacheBytes)
	if cfg.StallAfter == 0 {
		cfg.StallAfter = defaultStallAfter
	}
	s := &Store{
		cfg: cfg, hooks: hooks, cache: newLogCache(cfg.CacheBytes),
		snapshots: make(chan struct{}, maxSnapshots),
		done:      make(chan struct{}), wake: make(chan struct{}, 1), groups: make(map[GroupID]*GroupLog),
	}
	if err := s.openFile(path); err != nil {
		return nil, err
	}
	go s.commitLoop()
	return s, nil
}

// openFile opens the file and counts the opening.
func (s *Store) openFile(path string) error {
	if err := checkLength(path); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        lockTimeout,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		NoStatistics:   true,
	})
	if err != nil {
		return openError(path, err)
	}
	s.db = db
	if err := s.checkFormat(); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return sundog.Errorf(sundog.Conflict, "raft log %s is in use by another process", path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return sundog.Errorf(sundog.Corrupt, "raft log %s: %w", path, err)
	case errors.Is(err, os.ErrPermission):
		return sundog.Errorf(sundog.Denied, "raft log %s: %w", path, err)
	}
	return sundog.Errorf(sundog.Unavailable, "raft log %s: %w", path, err)
}

// checkFormat writes the format's number into a new file and demands it of an
// old one, and counts this opening.
func (s *Store) checkFormat() error {
	format, openings := []byte("sundog raft store 1"), []byte("openings")
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(metaBucket())
		if b == nil {
			if k, _ := tx.Cursor().First(); k != nil {
				return sundog.Errorf(sundog.Corrupt, "raft log: the file is another program's")
			}
			var err error
			if b, err = tx.CreateBucket(metaBucket()); err != nil {
				return err
			}
			if err := b.Put(metaBucket(), format); err != nil {
				return err
			}
		}
		if got := b.Get(metaBucket()); string(got) != string(format) {
			return sundog.Errorf(sundog.Corrupt, "raft log: format %.64q is not known to this version", got)
		}
		var seen uint64
		if v := b.Get(openings); len(v) == 8 {
			seen = binary.BigEndian.Uint64(v)
		}
		if seen < s.cfg.Openings {
			return sundog.Errorf(sundog.Corrupt, "raft log %s was opened %d times, this node remembers %d: it is an old copy or was emptied, and without what it forgot this node must not vote; move the data directory away and let the node join with an empty one",
				s.db.Path(), seen, s.cfg.Openings)
		}
		s.openings = seen + 1
		return b.Put(openings, binary.BigEndian.AppendUint64(nil, s.openings))
	})
}

// Openings is how often the file was opened, this time included.
func (s *Store) Openings() uint64 { return s.openings }

// Close commits what waits, ends the committer and releases the file. Groups
// must be closed before. A second Close does nothing.
//
// Kind Unavailable when a commit has not ended for 5 s: the disk is hung. The
// committer and the file are then left as they are, and the process should end:
// nothing was acknowledged that is not on disk.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
	if !s.await(s.done) {
		return sundog.Errorf(sundog.Unavailable, "raft log: the disk has not answered for %s: not closed", s.busyFor())
	}
	return s.db.Close() // again it does nothing
}

// busyFor is the age of the commit under way, 0 for none.
func (s *Store) busyFor() time.Duration {
	started := s.started.Load()
	if started == 0 {
		return 0
	}
	return time.Since(time.Unix(0, started))
}

// await waits for something that may wait for the disk; false once a commit has
// taken closeGrace.
func (s *Store) await(done <-chan struct{}) bool {
	for {
		timer := time.NewTimer(max(closeGrace-s.busyFor(), closePoll))
		select {
		case <-done:
			timer.Stop()
			return true
		case <-timer.C:
		}
		if s.busyFor() >= closeGrace {
			return false
		}
	}
}

// Commits counts the transactions that were synced since the store was opened.
func (s *Store) Commits() uint64 { return s.commits.Load() }

// Sick reports whether the disk is taken for hung (StoreConfig.StallAfter).
func (s *Store) Sick() bool {
	if s.cfg.StallAfter < 0 {
		return false
	}
	now := time.Now().UnixNano()
	started := s.started.Load()
	return started != 0 && now-started > int64(s.cfg.StallAfter) || now < s.sickUntil.Load()
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// submit queues the operation; its answer comes on op.done.
func (s *Store) submit(op *storeOp) {
	op.done = make(chan error, 1)
	s.mu.Lock()
	err := s.failure
	if err == nil && s.closed {
		err = sundog.Errorf(sundog.Closed, "raft log is closed")
	}
	if err == nil {
		s.queue = append(s.queue, op)
	}
	s.mu.Unlock()
	if err != nil {
		op.done <- err
		return
	}
	s.signal()
}

// commitLoop is the committer: the only writer of the file.
func (s *Store) commitLoop() {
	defer close(s.done)
	for range s.wake {
		for {
			batch, last := s.take()
			if len(batch) > 0 {
				s.commit(batch)
				continue
			}
			if last {
				return
			}
			break
		}
	}
}

// take removes the waiting operations, up to maxCommitBytes; last is set when
// there are none and never will be.
func (s *Store) take() (batch []*storeOp, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := 0
	n := 0
	for n < len(s.queue) && (n == 0 || bytes+s.queue[n].bytes <= maxCommitBytes) {
		bytes += s.queue[n].bytes
		n++
	}
	batch = s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return batch, s.closed && n == 0
}

// commit runs one transaction. Operations that are not finished by it (a long
// truncation goes in steps) queue again behind those that came meanwhile.
func (s *Store) commit(batch []*storeOp) {
	start := time.Now()
	s.started.Store(start.UnixNano())
	finished, again, err := s.transact(batch)
	took := time.Since(start)
	if s.cfg.StallAfter > 0 && took > s.cfg.StallAfter {
		s.sickUntil.Store(start.Add(took + s.cfg.StallAfter).UnixNano())
	}
	s.started.Store(0)
	if err != nil {
		s.fail(err, batch)
		return
	}
	s.commits.Add(1)
	if m := s.cfg.Metrics; m != nil {
		m.commitSeconds.Observe(took.Seconds())
		m.commitOps.Observe(float64(len(batch)))
	}
	if s.hooks.afterCommit != nil {
		s.hooks.afterCommit()
	}
	if !mutantAckBeforeSync {
		answer(finished)
	}
	if len(again) > 0 {
		for _, op := range again {
			op.steps.Add(1)
		}
		s.mu.Lock()
		s.queue = append(s.queue, again...)
		s.mu.Unlock()
		s.signal()
	}
}

// transact applies the batch and commits it: when it returns without error, all
// of it is on disk.
func (s *Store) transact(batch []*storeOp) (finished, again []*storeOp, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, nil, err
	}
	for _, op := range batch {
		more, err := op.apply(tx)
		if err != nil && sundog.KindOf(err) != sundog.Invalid {
			return nil, nil, errors.Join(err, tx.Rollback())
		}
		if op.err = err; more {
			again = append(again, op)
		} else {
			finished = append(finished, op)
		}
	}
	if mutantAckBeforeSync {
		answer(finished)
	}
	if s.hooks.beforeCommit != nil {
		s.hooks.beforeCommit()
	}
	return finished, again, tx.Commit()
}

// answer makes the effects visible and releases the callers.
func answer(ops []*storeOp) {
	for _, op := range ops {
		if op.err == nil && op.published != nil {
			op.published()
		}
		op.done <- op.err
	}
}

// fail ends the store: a write or sync of the file failed.
func (s *Store) fail(err error, batch []*storeOp) {
	err = sundog.Errorf(sundog.Internal, "raft log: commit failed, what is on disk is unknown: %w", err)
	s.mu.Lock()
	first := s.failure == nil
	s.failure = err
	waiting := s.queue
	s.queue = nil
	s.mu.Unlock()
	if first {
		s.cfg.Logger.Error("raft log failed", "error", err)
		if s.cfg.Fatal == nil {
			panic(err)
		}
		s.cfg.Fatal(err)
	}
	for _, op := range append(batch, waiting...) {
		select {
		case op.done <- err:
		default: // answered already
		}
	}
}
