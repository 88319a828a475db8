package membership

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/sundog-kv/sundog"
)

// Membership is a running member.
type Membership struct {
	cfg      Config
	lib      *memberlist.Memberlist
	gossip   string // the advertised host:port
	own      *netTransport
	box      *mailbox
	counters counters
	doubled  atomic.Pointer[string]
	stranger atomic.Pointer[string] // another cluster's id

	selfMu sync.Mutex // orders changes of self
	self   atomic.Pointer[Meta]
	dirty  chan struct{} // one token: self changed since it was last advertised

	members  atomic.Pointer[[]Member]
	changes  chan struct{}
	watchMu  sync.Mutex // guards watchers
	watchers map[chan struct{}]struct{}
	lost     lostMembers

	stop      context.CancelFunc
	loops     sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// Open binds the gossip address (unless a transport is given) and begins to
// look for the others. It does not wait to find any. ctx bounds Open only.
//
// Errors: Invalid and TooLarge as [Config.Check] says; Conflict when the
// address is taken; Unavailable when it cannot be bound or advertised.
func Open(ctx context.Context, cfg Config) (*Membership, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.Timing = cfg.Timing.orDefault()
	if cfg.ClusterLabel == "" {
		cfg.ClusterLabel = defaultLabel
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Seeds = slices.Clone(cfg.Seeds)
	m := &Membership{cfg: cfg, box: newMailbox(), dirty: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		watchers: map[chan struct{}]struct{}{}}
	m.self.Store(&cfg.Self)
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	loopCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.refresh(&table{})
	m.loops.Go(func() { m.eventLoop(loopCtx) })
	m.loops.Go(func() { m.publishLoop(loopCtx) })
	m.loops.Go(func() { m.rejoinLoop(loopCtx) })
	return m, nil
}

// start makes the transport and memberlist.
func (m *Membership) start(ctx context.Context) error {
	if m.cfg.Transport == nil {
		own, err := listenNet(ctx, m.cfg.BindAddr, m.cfg.AdvertiseHost, &m.counters, m.cfg.Logger)
		if err != nil {
			return err
		}
		m.own, m.cfg.Transport = own, own
	}
	lib := m.cfg.library()
	d := &delegate{box: m.box, self: &m.self, counters: &m.counters, doubled: &m.doubled, stranger: &m.stranger}
	lib.Delegate, lib.Events, lib.Alive, lib.Conflict = d, d, d, d
	lib.Logger = newLibraryLog(m.cfg.Logger, &m.counters)
	ip, port, err := m.cfg.Transport.FinalAdvertiseAddr("", 0)
	if err == nil {
		m.gossip = net.JoinHostPort(ip.String(), strconv.Itoa(port))
		lib.BindPort, lib.AdvertisePort = port, port
		m.lib, err = createLabelled(ctx, m.goroutineLabel(), lib)
	}
	if err != nil {
		m.cfg.Transport.Shutdown()
		return sundog.Errorf(sundog.Unavailable, "gossip: %w", err)
	}
	return nil
}

// goroutineLabel tells this member's goroutines from those of others in the process.
func (m *Membership) goroutineLabel() string { return fmt.Sprintf("%s/%p", gossipName(m.cfg.Self), m) }

// Addr returns the gossip address that is advertised, host:port.
func (m *Membership) Addr() string { return m.gossip }

// Members returns the present view, this node included, sorted by id. It is
// immutable and shared: do not change it. Any goroutine, no locks.
func (m *Membership) Members() []Member { return *m.members.Load() }

// Changes returns the channel that carries a token when Members changed since
// the last token was taken. One reader: a token goes to whoever takes it. More
// readers use Watch.
func (m *Membership) Changes() <-chan struct{} { return m.changes }

// Watch returns a channel like that of Changes for one more reader, and what
// ends it.
func (m *Membership) Watch() (changes <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	m.watchers[ch] = struct{}{}
	return ch, func() {
		m.watchMu.Lock()
		defer m.watchMu.Unlock()
		delete(m.watchers, ch)
	}
}

// SetEpoch tells the others that this node has a newer map; a lower epoch than
// the last is ignored. It returns at once; many calls become one message.
func (m *Membership) SetEpoch(epoch sundog.Epoch) {
	m.change(func(s *Meta) bool {
		newer := epoch > s.Epoch
		s.Epoch = max(s.Epoch, epoch)
		return newer
	})
}

// SetCluster tells the others that this node belongs to a cluster now. From
// then on nodes of other clusters are left out of Members. Invalid for what is
// no cluster id. It returns at once.
func (m *Membership) SetCluster(cluster string) error {
	probe := *m.self.Load()
	probe.Cluster = cluster
	if err := probe.Check(); err != nil {
		return err
	}
	m.change(func(s *Meta) bool {
		changed := s.Cluster != cluster
		s.Cluster = cluster
		return changed
	})
	return nil
}

// change swaps the own metadata and wakes the publisher and the event loop.
func (m *Membership) change(edit func(*Meta) bool) {
	m.selfMu.Lock()
	next := *m.self.Load()
	changed := edit(&next)
	if changed {
		m.self.Store(&next)
	}
	m.selfMu.Unlock()
	if !changed {
		return
	}
	select {
	case m.dirty <- struct{}{}:
	default:
	}
	m.box.wake()
}

// Doubled returns evidence (kind Conflict) that a second process runs with this
// node's identity, nil for none. It is a hint for the operator; what refuses a
// clone is the hello of every connection.
func (m *Membership) Doubled() error {
	if e := m.doubled.Load(); e != nil {
		return sundog.Errorf(sundog.Conflict, "%s", *e)
	}
	return nil
}

// ForeignCluster returns the id of another cluster whose node was kept out last,
// "" for none: two clusters that reach each other, usually by a wrong seed.
func (m *Membership) ForeignCluster() string {
	if c := m.stranger.Load(); c != nil {
		return *c
	}
	return ""
}

// eventLoop turns events into snapshots.
func (m *Membership) eventLoop(ctx context.Context) {
	t := &table{records: map[string]record{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.box.ready:
		}
		t.apply(m.box.take(), func(r record) { m.lost.add(r.gossip, time.Now()) })
		m.refresh(t)
	}
}

// refresh publishes the snapshot of t where it differs from the last.
func (m *Membership) refresh(t *table) {
	self := *m.self.Load()
	members, elder, stranger := t.view(Member{Meta: self, Gossip: m.gossip})
	if elder > 0 {
		evidence := doubledByBoot(self.Node, self.Boot, elder)
		m.doubled.CompareAndSwap(nil, &evidence)
	}
	if stranger != "" {
		m.stranger.Store(&stranger)
	}
	if last := m.members.Load(); last != nil && slices.Equal(*last, members) {
		return
	}
	m.members.Store(&members)
	token(m.changes)
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	for ch := range m.watchers {
		token(ch)
	}
}

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// publishLoop advertises changed metadata, at most once a gossip round.
func (m *Membership) publishLoop(ctx context.Context) {
	// UpdateNode queues the message and then waits for its last sending; the
	// wait is of no use here.
	const noWait = time.Millisecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.dirty:
		}
		_ = m.lib.UpdateNode(noWait)
		if !sleep(ctx, m.cfg.Timing.Gossip) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Close tells the others that this node leaves, stops gossiping and joins every
// goroutine. They take the node out of their view at once, which is no decision
// about its data. More calls return the same.
func (m *Membership) Close() error { return m.end(true) }

// Kill is Close without a word to the others, as a crash would be; they have to
// notice. For tests, and for a node that must go silent.
func (m *Membership) Kill() error { return m.end(false) }

func (m *Membership) end(leave bool) error {
	m.closeOnce.Do(func() {
		if leave {
			if err := m.lib.Leave(m.cfg.Timing.Leave); err != nil {
				m.cfg.Logger.Info("gossip: not all members may have heard of the leave", "error", err)
			}
		}
		m.stop()
		m.closeErr = m.lib.Shutdown()
		m.loops.Wait()
		m.awaitLabelled()
	})
	return m.closeErr
}
