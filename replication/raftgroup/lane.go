package raftgroup

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// outQueue holds messages that wait for a connection's writer.
type outQueue struct {
	wake chan struct{} // one token: something happened

	mu    sync.Mutex // guards what follows
	msgs  []*message
	bytes int
	lazy  bool // a wake-up is set for messages that may wait
}

func newOutQueue() outQueue { return outQueue{wake: make(chan struct{}, 1)} }

func (q *outQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// push adds a message; false when too much waits already.
func (q *outQueue) push(m *message) bool {
	q.mu.Lock()
	full := q.bytes > 0 && q.bytes+m.size > maxLaneQueue
	if !full {
		q.msgs = append(q.msgs, m)
		q.bytes += m.size + frameHeader
	}
	wait := m.hold > 0 && (q.lazy || len(q.msgs) == 1)
	if wait && !full && !q.lazy {
		q.lazy = true
		time.AfterFunc(untilTick(m.hold), func() {
			q.mu.Lock()
			q.lazy = false
			q.mu.Unlock()
			q.signal()
		})
	}
	q.mu.Unlock()
	if !full && !wait {
		q.signal()
	}
	return !full
}

// untilTick is the time to the next whole multiple of hold. The multiples are
// those of the wall clock, so that messages of all groups, to all peers and, as
// far as clocks agree, from all nodes, go at the same moments: an idle process
// then wakes once for all of them.
func untilTick(hold time.Duration) time.Duration {
	return hold - time.Duration(time.Now().UnixNano())%hold
}

// take removes all messages, also those that might still wait.
func (q *outQueue) take() []*message {
	q.mu.Lock()
	defer q.mu.Unlock()
	msgs := q.msgs
	q.msgs, q.bytes = nil, 0
	return msgs
}

func (q *outQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.msgs) == 0
}

// lane is the way to one peer: a connection that is dialled when there is
// something to send, and again after it was lost. Its goroutine starts with the
// first message and lives until the mux is closed.
type lane struct {
	peer  *peer
	name  string
	queue outQueue

	mu      sync.Mutex // guards what follows
	running bool
	conn    net.Conn // nil while not connected
	retryAt time.Time
	refusal error // of the last dial, until retryAt
}

func newLane(p *peer, name string) *lane {
	return &lane{peer: p, name: name, queue: newOutQueue()}
}

// send queues a message. It fails at once (kind Unavailable: surely not sent)
// shortly after a failed dial and when too much waits.
func (l *lane) send(m *message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.retryAt) {
		return l.refusal
	}
	if !l.running {
		if !l.peer.mux.start(l.run) {
			return sundog.Errorf(sundog.Closed, "raft transport is closed")
		}
		l.running = true
	}
	if !l.queue.push(m) {
		return sundog.Errorf(sundog.Unavailable, "node %s: too many bytes wait to be sent", l.peer.node)
	}
	return nil
}

// run dials when messages wait, writes them, and dials again after a loss.
func (l *lane) run() {
	mux := l.peer.mux
	backoff := minBackoff
	for {
		for l.queue.empty() {
			select {
			case <-l.queue.wake:
			case <-mux.life.Done():
				return
			}
		}
		conn, err := l.dial()
		mux.cfg.Metrics.dialled(l.name, err)
		if err != nil {
			l.lost(err, time.Now().Add(backoff/2+rand.N(backoff/2)))
			backoff = min(2*backoff, maxBackoff)
			if mux.life.over() {
				return
			}
			continue
		}
		since := time.Now()
		err = l.serve(conn)
		if time.Since(since) > maxBackoff {
			backoff = minBackoff
			l.lost(err, time.Time{})
		} else { // a peer that hangs up at once is not dialled in a circle
			l.lost(err, time.Now().Add(backoff))
			backoff = min(2*backoff, maxBackoff)
		}
		if mux.life.over() {
			return
		}
	}
}

func (l *lane) dial() (net.Conn, error) {
	mux := l.peer.mux
	ctx, cancel := context.WithTimeout(mux.life, mux.cfg.Timeout)
	defer cancel()
	conn, err := mux.cfg.Dial(ctx, l.peer.node, l.name)
	if err != nil {
		return nil, sundog.Errorf(sundog.Unavailable, "raft: node %s is not reached: %w", l.peer.node, err)
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	if mux.life.over() { // Close may have missed it
		_ = conn.Close()
	}
	return conn, nil
}

// lost fails what was sent or waits on the lane.
func (l *lane) lost(err error, retryAt time.Time) {
	if err == nil {
		err = sundog.Errorf(sundog.Unavailable, "raft: the connection to node %s was closed", l.peer.node)
	}
	l.mu.Lock()
	l.conn, l.retryAt, l.refusal = nil, retryAt, err
	l.queue.take()
	l.mu.Unlock()
	which := l
	if l.name == LaneUrgent {
		which = nil
	}
	l.peer.failCalls(which, err)
	l.peer.mux.cfg.Logger.Debug("raft connection lost", "peer", l.peer.node, "lane", l.name, "error", err)
}

// hangUp closes the connection, if there is one.
func (l *lane) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// serve writes messages until the connection is lost, idle or silent (nil: ended
// in peace), while a second goroutine reads answers.
func (l *lane) serve(conn net.Conn) error {
	mux := l.peer.mux
	l.peer.heard.Store(time.Now().UnixNano())
	readEnd := make(chan error, 1)
	if !mux.start(func() { readEnd <- l.readAnswers(conn) }) {
		_ = conn.Close()
		return sundog.Errorf(sundog.Closed, "raft transport is closed")
	}
	err := l.writeLoop(conn, readEnd)
	_ = conn.Close()
	<-readEnd
	return err
}

func (l *lane) writeLoop(conn net.Conn, readEnd chan error) error {
	mux := l.peer.mux
	w := frameWriter{conn: conn, timeout: mux.cfg.Timeout}
	tick := time.NewTicker(mux.cfg.DeadAfter / 3)
	defer tick.Stop()
	lastUse := time.Now()
	for {
		if msgs := l.queue.take(); len(msgs) > 0 {
			lastUse = time.Now()
			if err := w.write(msgs); err != nil {
				return sundog.Errorf(sundog.Unavailable, "raft: write to node %s: %w", l.peer.node, err)
			}
			continue
		}
		select {
		case <-l.queue.wake:
		case err := <-readEnd:
			readEnd <- err
			return sundog.Errorf(sundog.Unavailable, "raft: connection to node %s: %w", l.peer.node, err)
		case now := <-tick.C:
			if now.Sub(lastUse) > idleClose {
				return nil
			}
			if l.name == LaneUrgent && l.peer.silent(now) {
				l.peer.bulk.hangUp()
				return sundog.Errorf(sundog.Unavailable, "raft: node %s has been silent for %s", l.peer.node, mux.cfg.DeadAfter)
			}
		case <-mux.life.Done():
			return sundog.Errorf(sundog.Closed, "raft transport is closed")
		}
	}
}

// readAnswers reads until the connection ends. The writer closes it, so it needs
// no deadline of its own.
func (l *lane) readAnswers(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Time{})
	r := bufio.NewReaderSize(conn, 16<<10)
	for {
		msg, err := readMessage(r)
		if err != nil {
			return noEOF(err)
		}
		if msg.kind&kindAnswer == 0 {
			l.peer.mux.cfg.Metrics.refuse("request on a dialled connection")
			return sundog.Errorf(sundog.Corrupt, "node %s sent a request on our connection", l.peer.node)
		}
		l.peer.answered(&msg)
	}
}

// inbound is a connection the peer dialled: its reader takes requests, its
// writer sends answers.
type inbound struct {
	mux   *Mux
	peer  *peer
	lane  string
	conn  net.Conn
	queue outQueue
	life  *lifetime
}

// Accept takes over a connection that the peer dialled for a lane, its identity
// proved, and returns at once. Kind Invalid for an unknown lane, Closed after
// Close; the connection is then still the caller's.
func (m *Mux) Accept(conn net.Conn, node sundog.NodeID, lane string) error {
	if lane != LaneBulk && lane != LaneUrgent && lane != LaneSnapshot {
		return sundog.Errorf(sundog.Invalid, "raft: no lane %.32q", lane)
	}
	if node == m.cfg.Self || node == 0 {
		return sundog.Errorf(sundog.Denied, "raft: connection from node %s", node)
	}
	closed := sundog.Errorf(sundog.Closed, "raft transport is closed")
	if !m.track(conn) {
		return closed
	}
	if lane == LaneSnapshot {
		if !m.start(func() { m.receiveSnapshot(conn, node) }) {
			return closed
		}
		return nil
	}
	p := m.peer(node)
	in := &inbound{mux: m, peer: p, lane: lane, conn: conn, queue: newOutQueue(), life: newLifetime()}
	if !m.start(in.read) || !m.start(in.write) {
		return closed
	}
	p.mu.Lock()
	old := p.accepted[lane]
	p.accepted[lane] = in
	p.mu.Unlock()
	if old != nil { // the peer has dialled anew: it has given the old one up
		old.end()
	}
	return nil
}

func (in *inbound) end() {
	if in.life.close() {
		in.peer.mu.Lock()
		if in.peer.accepted[in.lane] == in {
			delete(in.peer.accepted, in.lane)
		}
		in.peer.mu.Unlock()
		in.mux.untrack(in.conn)
	}
}

func (in *inbound) write() {
	defer in.end()
	w := frameWriter{conn: in.conn, timeout: in.mux.cfg.Timeout}
	for {
		if msgs := in.queue.take(); len(msgs) > 0 {
			if err := w.write(msgs); err != nil {
				in.mux.cfg.Logger.Debug("raft answers not written", "peer", in.peer.node, "error", err)
				return
			}
			continue
		}
		select {
		case <-in.queue.wake:
		case <-in.life.Done():
			return
		case <-in.mux.life.Done():
			return
		}
	}
}

func (in *inbound) read() {
	defer in.end()
	r := bufio.NewReaderSize(deadlineReader{in.conn, idleRead}, 64<<10)
	names := serverNames{node: in.peer.node}
	for {
		msg, err := readMessage(r)
		if err != nil {
			if sundog.KindOf(err) == sundog.Corrupt {
				in.mux.cfg.Metrics.refuse("corrupt frame")
				in.mux.cfg.Logger.Warn("raft connection closed", "peer", in.peer.node, "lane", in.lane, "error", err)
			} else if err != io.EOF {
				in.mux.cfg.Logger.Debug("raft connection ended", "peer", in.peer.node, "lane", in.lane, "error", err)
			}
			return
		}
		in.mux.request(in, &msg, &names)
	}
}

// reply sends an answer: on the urgent connection that the peer dialled, so that
// it waits behind no bulk, or else on the one that the request came by.
func (in *inbound) reply(m *message) {
	in.peer.mu.Lock()
	out := in.peer.accepted[LaneUrgent]
	in.peer.mu.Unlock()
	if out == nil || out.life.over() {
		out = in
	}
	if !out.queue.push(m) {
		in.mux.cfg.Metrics.refuse("answer queue full")
	}
}
