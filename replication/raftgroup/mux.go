package raftgroup

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
)

// Lanes of a Mux: the kinds of connections between two nodes. The RPC protocol
// that upgrades to one is "raft/" and the lane.
const (
	// LaneBulk carries AppendEntries that have entries or a commit index.
	LaneBulk = "bulk"
	// LaneUrgent carries heartbeats, votes and TimeoutNow, and the other way all
	// answers, so that bulk never delays them.
	LaneUrgent = "urgent"
	// LaneSnapshot carries one snapshot and ends with it.
	LaneSnapshot = "snapshot"
)

// MuxConfig describes a node's transport.
type MuxConfig struct {
	Self sundog.NodeID
	// Dial connects to a node wherever it lives now and proves both identities.
	// It is called again after each loss, with backoff.
	Dial    func(ctx context.Context, node sundog.NodeID, lane string) (net.Conn, error)
	Logger  *slog.Logger // nil: discard
	Metrics *Metrics     // nil: none
	// Timeout bounds a dial, one write, and an RPC's answer; AppendEntries gets
	// as much again for each MiB. 0 is 5 s.
	Timeout time.Duration
	// DeadAfter without a byte from a peer that owes answers its connections are
	// taken for dead and made anew; 0 is 3 s.
	DeadAfter time.Duration
	// Snapshots bounds the snapshot streams in each direction; 0 is 2.
	Snapshots int
	// InboxBytes bounds the bytes of requests with entries that wait in all groups
	// or are being served, and one more for each group; 0 is 128 MiB.
	InboxBytes int64
}

const (
	defaultTimeout   = 5 * time.Second
	defaultDeadAfter = 3 * time.Second
	maxSnapshots     = 2
	minBackoff       = 50 * time.Millisecond
	maxBackoff       = time.Second
	// A lane with nothing to send for idleClose is closed by its dialler; the
	// other end gives up later, so that it never does so under a message.
	idleClose = time.Minute
	idleRead  = 2 * time.Minute
	// maxLaneQueue bounds the bytes that wait for one connection.
	maxLaneQueue = 64 << 20
)

// Mux carries the RPCs of all groups of a node over one set of connections to
// each peer: two that it dials (bulk, urgent), the two that the peer dials, and
// one for each snapshot under way.
type Mux struct {
	cfg  MuxConfig
	life *lifetime
	wg   sync.WaitGroup
	ids  atomic.Uint64
	// intake bounds the bytes of requests that groups have not answered.
	intake *intake
	// outgoing and incoming hold a token for each snapshot stream.
	outgoing, incoming chan struct{}

	mu         sync.Mutex // guards what follows
	transports map[GroupID]*transport
	peers      map[sundog.NodeID]*peer
	conns      map[net.Conn]struct{} // accepted, and snapshot streams dialled
}

// NewMux makes a transport; it dials when there is something to send.
func NewMux(cfg MuxConfig) *Mux {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&cfg.Timeout, defaultTimeout)
	setDefault(&cfg.DeadAfter, defaultDeadAfter)
	setDefault(&cfg.Snapshots, maxSnapshots)
	setDefault(&cfg.InboxBytes, defaultInboxBytes)
	m := &Mux{
		cfg: cfg, life: newLifetime(), intake: newIntake(cfg.InboxBytes),
		outgoing: make(chan struct{}, cfg.Snapshots), incoming: make(chan struct{}, cfg.Snapshots),
		transports: make(map[GroupID]*transport), peers: make(map[sundog.NodeID]*peer),
		conns: make(map[net.Conn]struct{}),
	}
	// Requests of an earlier life of this node must never be taken for ours.
	m.ids.Store(rand.Uint64())
	return m
}

// Close ends all connections and waits for their goroutines. Calls under way
// fail. Groups should be closed before.
func (m *Mux) Close() error {
	if m.life.close() {
		m.mu.Lock()
		for c := range m.conns {
			_ = c.Close()
		}
		for _, p := range m.peers {
			p.close()
		}
		m.mu.Unlock()
	}
	m.wg.Wait()
	return nil
}

// start runs f as a goroutine that Close joins; false when the mux is closed.
func (m *Mux) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.startLocked(f)
}

func (m *Mux) startLocked(f func()) bool {
	if m.life.over() {
		return false
	}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		f()
	}()
	return true
}

// track makes Close close the connection; false when it is closed already.
func (m *Mux) track(c net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.over() {
		return false
	}
	m.conns[c] = struct{}{}
	return true
}

func (m *Mux) untrack(c net.Conn) {
	m.mu.Lock()
	delete(m.conns, c)
	m.mu.Unlock()
	_ = c.Close()
}

func (m *Mux) peer(node sundog.NodeID) *peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[node]
	if p == nil {
		p = newPeer(m, node)
		m.peers[node] = p
	}
	return p
}

func (m *Mux) lookup(id GroupID) *transport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.transports[id]
}

// peer is what a mux knows of one other node.
type peer struct {
	mux    *Mux
	node   sundog.NodeID
	bulk   *lane
	urgent *lane
	heard  atomic.Int64 // Unix nanoseconds of its last answer

	mu    sync.Mutex // guards what follows
	calls map[uint64]*call
	// accepted are the connections this peer dialled, by lane.
	accepted map[string]*inbound
}

// call is a request that waits for its answer.
type call struct {
	id    uint64
	kind  byte
	group GroupID
	inc   uint32 // of the replica asked
	lane  *lane
	start time.Time
	done  chan result // buffered: exactly one result comes
}

type result struct {
	resp any
	err  error
}

func newPeer(m *Mux, node sundog.NodeID) *peer {
	p := &peer{mux: m, node: node, calls: make(map[uint64]*call), accepted: make(map[string]*inbound)}
	p.bulk = newLane(p, LaneBulk)
	p.urgent = newLane(p, LaneUrgent)
	return p
}

// close wakes the lanes of a mux that is closed and fails the calls.
func (p *peer) close() {
	p.bulk.queue.signal()
	p.urgent.queue.signal()
	p.failCalls(nil, sundog.Errorf(sundog.Closed, "raft transport is closed"))
}

// ask sends a request and registers its call.
func (p *peer) ask(l *lane, m *message, inc uint32) (*call, error) {
	c := &call{
		id: m.id, kind: m.kind, group: m.group, inc: inc, lane: l,
		start: time.Now(), done: make(chan result, 1),
	}
	p.mu.Lock()
	p.calls[c.id] = c
	p.mu.Unlock()
	if err := l.send(m); err != nil {
		p.forget(c)
		return nil, err
	}
	return c, nil
}

// forget ends a call whose answer nobody waits for any more.
func (p *peer) forget(c *call) {
	p.mu.Lock()
	delete(p.calls, c.id)
	p.mu.Unlock()
}

// failCalls fails the calls sent on the lane, nil for all. Answers come by the
// urgent lane, so with it all are lost.
func (p *peer) failCalls(l *lane, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.calls {
		if l == nil || c.lane == l {
			delete(p.calls, id)
			c.done <- result{err: err}
		}
	}
}

// answered hands an answer to its call. One that no call waits for, or that is
// not from the replica asked, is dropped.
func (p *peer) answered(msg *received) {
	p.heard.Store(time.Now().UnixNano())
	p.mu.Lock()
	c := p.calls[msg.id]
	ok := c != nil && c.group == msg.group && c.inc == msg.from && (msg.kind == kindError || msg.kind == c.kind|kindAnswer)
	if ok {
		delete(p.calls, msg.id)
	}
	p.mu.Unlock()
	if !ok {
		p.mux.cfg.Metrics.refuse("answer without a call")
		return
	}
	var r result
	if msg.kind == kindError {
		r.err = decodeRefusal(msg.payload)
	} else {
		r.resp, r.err = decodeAnswer(c.kind, msg.payload, headerOf(p.node, msg.from))
	}
	c.done <- r
}

// silent reports whether the peer owes an answer for longer than DeadAfter and
// has sent nothing for as long.
func (p *peer) silent(now time.Time) bool {
	limit := p.mux.cfg.DeadAfter
	if now.UnixNano()-p.heard.Load() < int64(limit) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if now.Sub(c.start) >= limit {
			return true
		}
	}
	return false
}
