package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

// exchange is one partition's share of a call: what to send, and what to make of
// the answer. It is used by one goroutine.
type exchange interface {
	method() rpc.Method
	mutates() bool
	target() *Pool
	// body encodes what is still open.
	body() rpc.Body
	// settle takes an answer of node. It returns nil when nothing is left open,
	// else the error that says why not.
	settle(body []byte, node sundog.NodeID) *sundog.Error
	// fail ends all that is still open with err.
	fail(err *sundog.Error)
	// split makes what is open smaller, after a reply that did not fit in one
	// frame, and returns what it took out, nil for nothing; false when it cannot.
	split() (exchange, bool)
}

// run does an exchange to its end. The exchange has all its
// outcomes when run returns.
func (c *Client) run(ctx context.Context, r route, x exchange) {
	var t tries
	if c.over(ctx) {
		x.fail(c.ended(ctx, 0, nil))
		return
	}
	for {
		node, err := r.choose(c.view.Load(), &t, &c.health)
		if err == nil {
			err = c.attempt(ctx, node, x)
			t.sent++
		}
		if err == nil {
			return
		}
		if err.Kind == sundog.TooLarge && !x.mutates() {
			if rest, ok := x.split(); ok {
				c.counters.retries[reasonSplit].Add(1)
				if rest != nil {
					c.run(ctx, r, rest)
				}
				continue
			}
		}
		if c.health.rests(node.ID) {
			c.doubt(r, node.ID)
		}
		act, why := judge(err.Kind, x.mutates())
		if act == actEnd || act == actUnknown || c.over(ctx) {
			x.fail(c.verdict(ctx, &t, r, x, act, err))
			return
		}
		if !c.prepare(ctx, &t, r, node, act, err) || tooLate(ctx, x) {
			x.fail(c.verdict(ctx, &t, r, x, act, err))
			return
		}
		if gone := x.target().gone(err.Epoch); act == actRefresh && gone != nil {
			x.fail(gone)
			return
		}
		c.counters.retries[why].Add(1)
	}
}

// prepare makes the next attempt worth trying: it follows a redirect, gets a
// newer map, or pauses. It returns false when the call is over.
func (c *Client) prepare(ctx context.Context, t *tries, r route, node ring.Node, act action, err *sundog.Error) bool {
	had := c.epoch()
	t.next = 0
	if act == actRedirect {
		leader, known := c.view.Load().Map().Node(err.Leader)
		t.headless = !r.any && (!known || c.health.rests(leader.ID))
		switch {
		case !known || leader.ID == node.ID || c.health.rests(leader.ID):
			c.doubt(r, node.ID)
		case t.hops < maxHops && !t.avoid[leader.ID]:
			t.hops++
			t.next = leader.ID
			c.counters.redirects.Add(1)
			c.hint(r, leader.ID)
			return true
		default: // it did not serve a moment ago, or they send us round in circles
			t.next = leader.ID
			delete(t.avoid, leader.ID)
		}
	}
	if act == actElsewhere {
		t.shun(node.ID)
	}
	t.hops = 0
	t.asked++
	if act == actRefresh || act == actElsewhere || err.Epoch > had || t.pauses > 1 {
		// Without an answer the pause below is all there is to do.
		if refreshed := c.refresh(ctx); refreshed == nil && err.Epoch > had && c.epoch() >= err.Epoch {
			return true // the map was old: now the call can go on at once
		}
	}
	return c.pause(ctx, t)
}

// pause waits before another attempt; false when the call is over first.
func (c *Client) pause(ctx context.Context, t *tries) bool {
	timer := time.NewTimer(pauseFor(t.pauses))
	defer timer.Stop()
	t.pauses++
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.done:
	}
	return false
}

// attempt sends x to node once and settles the answer.
func (c *Client) attempt(ctx context.Context, node ring.Node, x exchange) *sundog.Error {
	short, cancel := shortened(ctx)
	defer cancel()
	conn, err := c.conns.Get(short, node.Listen)
	if err != nil {
		if ctx.Err() == nil {
			c.health.rest(node.ID)
		}
		return notSent(node.Listen, err)
	}
	if peer := conn.Peer().Node; peer != 0 && peer != node.ID {
		return sundog.Errorf(sundog.Unavailable, "%s is node %s now, not %s", node.Listen, peer, node.ID)
	}
	if x.mutates() {
		short = ctx // once sent, a mutation waits to the end of the call
	}
	c.counters.frames.Add(1)
	stop := c.watch(node.ID, conn)
	reply, err := conn.Call(short, x.method(), c.epoch(), x.body())
	stop()
	c.observe(reply.Epoch)
	if err != nil {
		return sundog.AsError(err)
	}
	c.health.back(node.ID)
	return x.settle(reply.Body, node.ID)
}

// shortened is ctx with the deadline of one attempt.
func shortened(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, attemptShare(time.Until(deadline)))
}

// notSent is the error of a request that had no connection to go out on,
// whatever the reason.
func notSent(addr string, err error) *sundog.Error {
	if sundog.KindOf(err) == sundog.Unavailable {
		return sundog.AsError(err)
	}
	return sundog.Errorf(sundog.Unavailable, "%s: %w", addr, err)
}

// over reports whether the call may make no further attempt.
func (c *Client) over(ctx context.Context) bool { return ctx.Err() != nil || c.closed() }

// tooLate reports whether sending a mutation once more could only make its
// outcome unknown.
func tooLate(ctx context.Context, x exchange) bool {
	deadline, ok := ctx.Deadline()
	return ok && x.mutates() && time.Until(deadline) < lastChance
}

// verdict is the error a call ends with after its last attempt ended with err.
func (c *Client) verdict(ctx context.Context, t *tries, r route, x exchange, act action, err *sundog.Error) *sundog.Error {
	switch {
	case act == actUnknown && c.closed():
		return sundog.Errorf(sundog.Unknown, "client closed while the mutation was under way: %w", sundog.Closed)
	case act == actUnknown:
		return unknown(err)
	case act == actEnd && !(c.closed() && err.Kind == sundog.Closed):
		return err
	}
	e := c.ended(ctx, t.sent, err)
	if unserved := e.Kind == sundog.Unavailable || e.Kind == sundog.Timeout; t.headless && unserved {
		e.Msg = fmt.Sprintf("partition %d has no leader: start a majority of its replicas, which are on nodes %s; %s",
			r.part, strings.Trim(fmt.Sprint(r.candidates(c.view.Load().Map(), t)), "[]"), e.Msg)
	}
	return e
}

// ended is the error of a call that ran out of time, or whose client or context
// was closed, before anything of it was surely executed. last is what the last
// attempt said; nil for none.
func (c *Client) ended(ctx context.Context, attempts int, last *sundog.Error) *sundog.Error {
	switch {
	case c.closed():
		return sundog.Errorf(sundog.Closed, "client closed during the call")
	case errors.Is(ctx.Err(), context.Canceled):
		return sundog.Errorf(sundog.Closed, "call cancelled: %w", ctx.Err())
	case last == nil:
		return sundog.Errorf(sundog.Timeout, "deadline passed: %w", context.DeadlineExceeded)
	case last.Kind == sundog.Unknown || last.Kind == sundog.Timeout:
		return sundog.Errorf(sundog.Timeout, "no answer in time after %d attempts: %s", attempts, text(last))
	}
	e := sundog.Errorf(sundog.Unavailable, "gave up after %d attempts: %s", attempts, text(last))
	e.Epoch, e.Leader = last.Epoch, last.Leader
	return e
}

// text is an error's message without its kind, which a message around it names.
func text(err error) string {
	if e, ok := errors.AsType[*sundog.Error](err); ok && e.Msg != "" {
		return e.Msg
	}
	return err.Error()
}
