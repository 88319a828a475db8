package rpc

import (
	"context"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// inbound is one request in service and the context it is served under. The
// context costs no timer until somebody asks for its Done channel: most handlers
// of a hit never do.
type inbound struct {
	req    Request
	id     uint64
	parent context.Context // ends with the connection

	mu     sync.Mutex // guards the fields below
	timed  context.Context
	cancel context.CancelFunc
	over   bool // the handler has returned
}

// Deadline returns when the caller stops waiting, if it said so.
func (c *inbound) Deadline() (time.Time, bool) { return c.req.Deadline, !c.req.Deadline.IsZero() }

// Done returns a channel that is closed at the deadline, when the connection
// ends or when the handler has returned.
func (c *inbound) Done() <-chan struct{} { return c.inner().Done() }

// Err returns why the request ended, nil while it has not.
func (c *inbound) Err() error {
	c.mu.Lock()
	timed := c.timed
	over := c.over
	c.mu.Unlock()
	if timed != nil {
		return timed.Err()
	}
	if err := c.parent.Err(); err != nil {
		return err
	}
	if over {
		return context.Canceled
	}
	if d := c.req.Deadline; !d.IsZero() && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value looks the key up in the inner context once there is one, so that
// package context finds its own kind there and derives without a goroutine.
func (c *inbound) Value(key any) any {
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.parent.Value(key)
}

// inner makes the standard context behind this one at the first need.
func (c *inbound) inner() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		if c.req.Deadline.IsZero() {
			c.timed, c.cancel = context.WithCancel(c.parent)
		} else {
			c.timed, c.cancel = context.WithDeadline(c.parent, c.req.Deadline)
		}
		if c.over {
			c.cancel()
		}
	}
	return c.timed
}

// end ends the context when the handler has returned.
func (c *inbound) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

// lifetime is the root of a server's contexts: it has no deadline and no values
// and never ends by itself; NewServer derives from it what Close cancels.
type lifetime struct{}

func (lifetime) Deadline() (time.Time, bool) { return time.Time{}, false }
func (lifetime) Done() <-chan struct{}       { return nil }
func (lifetime) Err() error                  { return nil }
func (lifetime) Value(any) any               { return nil }

// expired is the answer to a request whose budget had passed before it was
// served.
func expired() *sundog.Error {
	return sundog.Errorf(sundog.Timeout, "the time for this request had passed before it was served")
}
