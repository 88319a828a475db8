package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
)

// Conn is a connection to one node on which any number of calls may be in
// flight; it is safe for concurrent use. It ends by Close, when the other side
// goes, when nothing is heard from it ([Limits].KeepAlive, Probe), or after
// [Limits].Idle without a call; it never reconnects, a [Pool] does.
type Conn struct {
	nc      net.Conn
	peer    Peer
	limits  Limits
	metrics *Metrics
	in      *frameReader
	out     *outbound
	done    chan struct{}
	reader  sync.WaitGroup

	// calls are for reuse. They stay with their connection, since their channels
	// must not leave a bubble of virtual time.
	calls sync.Pool

	heard atomic.Uint64 // frames received
	probe atomic.Int64  // when a doubtful connection was pinged, Unix ns; 0 not

	mu    sync.Mutex // guards the fields below
	table table
	err   error // why the connection ended
}

// Dial connects to addr (host:port), shakes hands, and proves to be a node if
// cfg says so. It takes as long as ctx and [Limits].Handshake allow. An address
// where nobody answers in time, or somebody who is not a Sundog node or not the
// one expected, is [sundog.Unavailable]; a refusal comes as the other side sent
// it (Denied, Conflict, Invalid, Unavailable).
func Dial(ctx context.Context, addr string, cfg DialConfig) (*Conn, error) {
	nc, peer, err := dial(ctx, addr, "", cfg)
	if err != nil {
		return nil, err
	}
	limits := cfg.Limits.WithDefaults()
	c := &Conn{
		nc: nc, peer: peer, limits: limits, metrics: cfg.Metrics,
		in:   newFrameReader(nc, limits, limits.KeepAlive),
		out:  newOutbound(nc, limits, cfg.Metrics),
		done: make(chan struct{}),
	}
	c.calls.New = newCall
	c.out.broken = c.fail
	c.out.finished = (*message).unref
	c.out.stopped = c.settle
	c.metrics.conn(sideDialer, 1)
	c.reader.Add(1)
	go func() {
		defer c.reader.Done()
		c.fail(c.readLoop())
		c.metrics.conn(sideDialer, -1)
	}()
	return c, nil
}

// Peer is the node at the other end. IsNode is set only if both sides proved to
// be nodes.
func (c *Conn) Peer() Peer { return c.peer }

// Done is closed when the connection has ended and every call on it has its
// outcome.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and returns when its goroutines have. Calls in
// flight end as on a lost connection. Closing again does nothing.
func (c *Conn) Close() error {
	c.fail(sundog.Errorf(sundog.Closed, "the connection was closed on this side"))
	c.reader.Wait()
	c.out.writers.Wait()
	return nil
}

// fail ends the connection for the first reason given.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	c.mu.Unlock()
	if errors.Is(err, errStalled) {
		c.metrics.stall()
	}
	_ = c.nc.Close() // the reason is known already
	c.out.stop()
}

func (c *Conn) waits(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.waits(id)
}

// usage says how many calls were ever made and whether any is in flight.
func (c *Conn) usage() (made uint64, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.made, c.table.used > 0
}
