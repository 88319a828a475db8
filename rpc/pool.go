package rpc

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// Backoff after failed dials of one address: doubled each time, jittered by a
// half, so that a node that comes back is found within a second or so and a dead
// one costs little.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
)

// Pool keeps one connection per address, made at the first need and again after
// it was lost. It is safe for concurrent use.
type Pool struct {
	cfg   DialConfig
	dials sync.WaitGroup

	mu     sync.Mutex // guards the fields below; never held over a dial
	closed bool
	addrs  map[string]*poolEntry
	lost   []*Conn // ended by themselves; the next dial, or Close, joins them
}

// poolEntry is what a pool knows of one address.
type poolEntry struct {
	conn     *Conn
	dialing  *poolDial
	failures int
	retryAt  time.Time
	lastErr  error
}

// poolDial is a dial in progress that any number of callers wait for.
type poolDial struct {
	done   chan struct{} // closed when conn and err are set
	conn   *Conn
	err    error
	cancel context.CancelFunc
}

// NewPool makes an empty pool; cfg is used for every dial. Expect is of no use
// here: addresses of different nodes share the pool.
func NewPool(cfg DialConfig) *Pool {
	return &Pool{cfg: cfg, addrs: make(map[string]*poolEntry)}
}

// Get returns the live connection to addr, or dials: one dial at a time for an
// address, whose outcome all who wait share. A dial goes on when its first
// caller gives up, bounded by [Limits].Handshake. Right after a failed dial Get
// fails at once with its error, for a jittered 50 ms to 1 s. Errors are those of
// [Dial], [sundog.Unavailable] when ctx ended the wait, [sundog.Closed] after
// Close.
func (p *Pool) Get(ctx context.Context, addr string) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, sundog.Errorf(sundog.Unavailable, "connect to %s: %w", addr, err)
	}
	conn, d, err := p.find(ctx, addr)
	if conn != nil || err != nil {
		return conn, err
	}
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, sundog.Errorf(sundog.Unavailable, "connect to %s: %w", addr, context.Cause(ctx))
	}
}

// find returns the connection, the error to fail with, or the dial to wait for.
func (p *Pool) find(ctx context.Context, addr string) (*Conn, *poolDial, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, sundog.Errorf(sundog.Closed, "the connection pool is closed")
	}
	e := p.addrs[addr]
	if e == nil {
		e = &poolEntry{}
		p.sweep()
		p.addrs[addr] = e
	}
	if e.conn != nil && e.conn.Err() == nil {
		return e.conn, nil, nil
	}
	p.lose(e)
	if e.dialing != nil {
		return nil, e.dialing, nil
	}
	if e.lastErr != nil && time.Now().Before(e.retryAt) {
		return nil, nil, e.lastErr
	}
	// The dial outlives the caller who needed it first; its own limit and Close
	// end it.
	dialCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.dialing = &poolDial{done: make(chan struct{}), cancel: cancel}
	p.dials.Add(1)
	go p.dial(dialCtx, addr, e, e.dialing)
	return nil, e.dialing, nil
}

// dial is the goroutine of one dial.
func (p *Pool) dial(ctx context.Context, addr string, e *poolEntry, d *poolDial) {
	defer p.dials.Done()
	defer d.cancel()
	p.mu.Lock()
	lost := p.lost
	p.lost = nil
	p.mu.Unlock()
	for _, c := range lost {
		_ = c.Close() // always nil
	}
	conn, err := Dial(ctx, addr, p.cfg)
	p.mu.Lock()
	closed := p.closed
	e.dialing = nil
	switch {
	case err != nil:
		e.lastErr, e.retryAt = err, time.Now().Add(backoff(e.failures))
		e.failures++
	case !closed:
		e.conn, e.failures, e.lastErr = conn, 0, nil
	}
	p.mu.Unlock()
	if closed {
		if err == nil {
			_ = conn.Close() // nobody has it
		}
		conn, err = nil, sundog.Errorf(sundog.Closed, "the connection pool is closed")
	}
	d.conn, d.err = conn, err
	close(d.done)
}

// lose moves an entry's dead connection to those that are to be joined.
func (p *Pool) lose(e *poolEntry) {
	if e.conn != nil {
		p.lost = append(p.lost, e.conn)
		e.conn = nil
	}
}

// sweep forgets addresses that are of no use any more, when a new one comes.
func (p *Pool) sweep() {
	now := time.Now()
	for addr, e := range p.addrs {
		live := e.conn != nil && e.conn.Err() == nil
		if !live && e.dialing == nil && now.Sub(e.retryAt) > time.Minute {
			p.lose(e)
			delete(p.addrs, addr)
		}
	}
}

// backoff is the pause after that many failures before.
func backoff(failures int) time.Duration {
	d := min(backoffMin<<min(failures, 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}

// Close ends dials and connections and joins their goroutines. Calls in flight
// end as on a lost connection. Closing again does nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	conns := p.lost
	p.lost = nil
	for _, e := range p.addrs {
		if e.dialing != nil {
			e.dialing.cancel()
		}
		if e.conn != nil {
			conns = append(conns, e.conn)
		}
	}
	clear(p.addrs)
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // always nil
	}
	p.dials.Wait()
	return nil
}
