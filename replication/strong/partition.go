package strong

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

// Config describes one replica of one partition.
type Config struct {
	Partition sundog.Partition
	// Group is the Raft group's part: Self, Store, Mux, SnapshotDir, Timings,
	// Clock (nil: the wall clock), Metrics and limits. Open sets ID, Machine and
	// Logger; OnLeader and OnFailure, where given, are called after Open's own.
	Group raftgroup.Config
	// Arenas is the node's table memory.
	Arenas *replication.Arenas
	// Map returns the newest map that the node has, nil while it has none. The
	// leader takes the pools and the number of partitions from it.
	Map func() *ring.Map
	// Logger; nil discards.
	Logger *slog.Logger
}

// group is what a Partition uses of a *raftgroup.Group.
type group interface {
	Propose(ctx context.Context, command []byte) (any, error)
	Barrier(ctx context.Context) error
	Status() raftgroup.Status
	Close() error
}

// Partition is a replica of one partition of all strong pools, a
// replication.Engine and a replication.Checker.
type Partition struct {
	partition sundog.Partition
	arenas    *replication.Arenas
	getMap    func() *ring.Map
	clock     func() sundog.Clock
	logger    *slog.Logger

	machine *machine
	raft    *raftgroup.Group // nil in tests of this package that bring their own group
	group   group

	reign  atomic.Pointer[reign]        // while this replica leads
	alarm  atomic.Pointer[sundog.Error] // why the group stopped for good
	checks chan checkJob
	sums   checkResults
	wake   chan struct{} // tells lead that something changed; one token
	dirty  chan struct{} // tells groom that something was applied; one token

	life life
	wait sync.WaitGroup
	once sync.Once
	err  error // of Close
}

var (
	_ replication.Engine  = (*Partition)(nil)
	_ replication.Checker = (*Partition)(nil)
)

// Open starts the replica on what its store and snapshots hold. A replica that
// is new is empty; the node bootstraps its group ([Partition.Group]) or waits
// for it to be added to one.
func Open(cfg Config) (*Partition, error) {
	if cfg.Arenas == nil || cfg.Map == nil {
		return nil, sundog.Errorf(sundog.Invalid, "partition %d: Arenas and Map must be set", cfg.Partition)
	}
	p := newPartition(cfg)
	gc := cfg.Group
	gc.ID = raftgroup.PartitionGroup(cfg.Partition)
	gc.Machine = p.machine
	gc.Clock = p.clock
	gc.Logger = p.logger
	gc.OnLeader = func(leading bool, term uint64) {
		p.onLeader(leading, term)
		if cfg.Group.OnLeader != nil {
			cfg.Group.OnLeader(leading, term)
		}
	}
	gc.OnFailure = func(err error) {
		p.onFailure(err)
		if cfg.Group.OnFailure != nil {
			cfg.Group.OnFailure(err)
		}
	}
	g, err := raftgroup.Open(gc)
	if err != nil {
		p.discard()
		return nil, err
	}
	p.raft = g
	p.start(g)
	return p, nil
}

// newPartition builds a replica that has no group yet.
func newPartition(cfg Config) *Partition {
	p := &Partition{
		partition: cfg.Partition,
		arenas:    cfg.Arenas,
		getMap:    cfg.Map,
		clock:     cfg.Group.Clock,
		logger:    cfg.Logger,
		checks:    make(chan checkJob, checksQueued),
		wake:      make(chan struct{}, 1),
		dirty:     make(chan struct{}, 1),
		life:      make(life),
	}
	if p.clock == nil {
		p.clock = func() sundog.Clock { return sundog.ClockAt(time.Now()) }
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.machine = newMachine(deps{
		partition: cfg.Partition,
		arenas:    cfg.Arenas,
		logger:    p.logger,
		newID:     newID,
		now:       p.now,
		queue:     p.queueCheck,
		onDue:     func() { poke(p.wake) },
		onApply:   func() { poke(p.dirty) },
	})
	return p
}

// start runs the replica over its group.
func (p *Partition) start(g group) {
	p.group = g
	p.wait.Go(func() { p.lead(p.life) })
	p.wait.Go(func() { p.groom(p.life) })
	p.wait.Go(func() { p.hash(p.life) })
}

// Group returns the partition's Raft group, for bootstrap, membership changes
// and snapshots, which are the node's to decide.
func (p *Partition) Group() *raftgroup.Group { return p.raft }

// Close stops the replica: its group first, then its goroutines, then its
// tables, when nobody reads them any more. Closing twice is harmless.
func (p *Partition) Close() error {
	p.once.Do(func() {
		close(p.life)
		p.err = p.group.Close()
		if r := p.reign.Swap(nil); r != nil {
			p.settle(r.end())
		}
		p.wait.Wait()
		p.discard()
	})
	return p.err
}

// discard frees what the machine holds. Nobody applies anything any more.
func (p *Partition) discard() {
	for len(p.checks) > 0 {
		(<-p.checks).close()
	}
	p.machine.close()
}

// Status says what the replica holds and how it is.
func (p *Partition) Status() replication.Status {
	g := p.group.Status()
	st := replication.Status{
		Partition: p.partition,
		Self:      g.Self,
		Leading:   g.Leading,
		Leader:    g.Leader,
		Term:      g.Term,
		Applied:   g.Applied,
		Members:   g.Members,
	}
	if err := p.stopReason(); err != nil {
		st.Alarm = err.Error()
	}
	v := p.machine.guard.current.Load()
	if v == nil {
		return st
	}
	st.Catalog = v.catalog
	for _, pl := range v.sorted() {
		st.Pools = append(st.Pools, replication.PoolStatus{
			ID:    pl.id,
			Keys:  pl.keys.Load(),
			Bytes: pl.bytes.Load(),
			Limit: p.share(pl.spec.Load().quota),
		})
	}
	return st
}

// stopReason is why this replica applies nothing any more, nil while it does.
func (p *Partition) stopReason() *sundog.Error {
	if err := p.machine.stopped.Load(); err != nil {
		return err
	}
	return p.alarm.Load()
}

func (p *Partition) onFailure(err error) {
	p.alarm.Store(sundog.AsError(err))
	p.logger.Error("partition's group stopped on this node", "partition", p.partition, "reason", p.stopReason())
}

// noShare stands for a pool without a quota.
const noShare = int64(-1)

// share is what a quota leaves to one partition: its P-th part, rounded down, so
// that the parts never exceed it. A node that has no map cannot say, and leaves
// nothing.
func (p *Partition) share(quota int64) int64 {
	m := p.getMap()
	switch {
	case quota == 0:
		return noShare
	case m == nil:
		return 0
	}
	return quota / int64(m.Partitions)
}

func (p *Partition) now() int64 { return millis(p.clock()) }

func (p *Partition) epoch() sundog.Epoch {
	if m := p.getMap(); m != nil {
		return m.Epoch
	}
	return 0
}

// poke leaves a token where there is none.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newID draws a random number that is not zero.
func newID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// life is the context of a replica's own work: it ends with Close and has no
// deadline.
type life chan struct{}

func (l life) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l life) Done() <-chan struct{}       { return l }
func (l life) Value(any) any               { return nil }
func (l life) Err() error {
	select {
	case <-l:
		return context.Canceled
	default:
		return nil
	}
}
