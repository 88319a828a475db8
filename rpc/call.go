package rpc

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/sundog-kv/sundog"
)

// call is one request that waits for its answer. Whoever takes it out of the
// connection's table owns its end: the reader (an answer came), the caller (its
// context ended) or settle (the connection did).
type call struct {
	msg   *message
	reply Reply
	err   error
	done  chan struct{} // one token when reply and err are set
}

func newCall() any { return &call{done: make(chan struct{}, 1)} }

func (k *call) finish(reply Reply, err error) {
	k.reply, k.err = reply, err
	k.done <- struct{}{}
}

// Call sends one request and waits for its answer. It is one attempt; the error
// says exactly what became of it:
//   - [sundog.Unavailable]: the request never went out whole and is surely not
//     executed, whether the connection was lost, ctx ended or a deadline passed
//     before (errors.Is finds the context's error);
//   - [sundog.Unknown]: it went out and no answer came before ctx or the
//     connection ended; for a method that changes nothing that is harmless;
//   - [sundog.TooLarge]: body is over the frame limit, nothing was sent;
//   - otherwise the error that the other side answered, as it was sent.
//
// The deadline of ctx goes with the request as the time left. Reply.Epoch is set
// on answered errors too. body is rpc's until Call returns.
func (c *Conn) Call(ctx context.Context, m Method, epoch sundog.Epoch, body Body) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, c.notSent(err)
	}
	if size := afterLength + body.Len(); size > c.limits.MaxFrame {
		return Reply{}, tooLarge("request", int64(size), int64(c.limits.MaxFrame))
	}
	msg := newMessage(&header{method: m, epoch: epoch}, body, 2)
	msg.deadline, _ = ctx.Deadline()
	heard := c.heard.Load()
	k := c.calls.Get().(*call)
	k.msg = msg
	id, err := c.add(k)
	if err != nil {
		msg.unref() // the writer's share
		c.recycle(k)
		return Reply{}, c.notSent(err)
	}

	if !c.out.send(msg) {
		// The connection ended just now: settle may or may not have seen us.
		msg.state.Store(msgUnsent)
		msg.release()
		msg.unref() // the writer's share
		if c.remove(id) != nil {
			c.recycle(k)
			return Reply{}, c.notSent(c.Err())
		}
		<-k.done
		return c.end(ctx, k)
	}
	select {
	case <-k.done:
		return c.end(ctx, k)
	case <-ctx.Done():
	}
	if c.remove(id) == nil {
		<-k.done // an answer, or the end of the connection, was first
		return c.end(ctx, k)
	}
	return c.abandon(ctx, k, heard)
}

// end hands out what became of a call that is done.
func (c *Conn) end(ctx context.Context, k *call) (Reply, error) {
	c.reclaim(ctx, k.msg)
	reply, err := k.reply, k.err
	c.recycle(k)
	return reply, err
}

// abandon gives up a call whose context ended, heard being what the connection
// had received when it was sent.
func (c *Conn) abandon(ctx context.Context, k *call, heard uint64) (Reply, error) {
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = ctx.Err()
	}
	if k.msg.state.CompareAndSwap(msgQueued, msgUnsent) || k.msg.state.Load() == msgUnsent {
		c.recycle(k)
		return Reply{}, c.notSent(cause)
	}
	c.reclaim(ctx, k.msg)
	unsent := k.msg.state.Load() == msgUnsent
	c.recycle(k)
	if c.heard.Load() == heard {
		c.suspect()
	}
	if unsent {
		return Reply{}, c.notSent(cause)
	}
	return Reply{}, sundog.Errorf(sundog.Unknown, "sent to %s, no answer: %w", c.peer.Addr, cause)
}

// reclaim returns when the writer does not read the body any more; once ctx has
// ended it sees to that.
func (c *Conn) reclaim(ctx context.Context, m *message) {
	if m.released == nil {
		return
	}
	select {
	case <-m.released:
		return
	default:
	}
	select {
	case <-m.released:
	case <-ctx.Done():
		c.out.reclaim()
		<-m.released
	}
}

func (c *Conn) recycle(k *call) {
	k.msg.unref()
	k.msg, k.reply, k.err = nil, Reply{}, nil
	c.calls.Put(k)
}

// add enters a call in the table and stamps its message with the id; the error
// is why the connection ended.
func (c *Conn) add(k *call) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	id := c.table.add(k)
	le.PutUint64(k.msg.buf[idAt:], id)
	return id, nil
}

func (c *Conn) remove(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.take(id)
}

// notSent is the error of a request that never went out whole.
func (c *Conn) notSent(cause error) *sundog.Error {
	return sundog.Errorf(sundog.Unavailable, "not sent to %s: %w", c.peer.Addr, cause)
}

// suspect sees to it that a connection that swallowed a call is given up soon
// unless it shows a sign of life: the next call then gets a new one.
func (c *Conn) suspect() {
	if c.probe.CompareAndSwap(0, time.Now().UnixNano()) {
		c.ping()
		c.in.expect(c.limits.Probe)
	}
}

// ping sends a ping that nobody waits for; its answer is a sign of life.
func (c *Conn) ping() {
	m := newMessage(&header{method: MethodPing, id: math.MaxUint64}, nil, 1)
	if !c.out.send(m) {
		m.unref()
	}
}

// readLoop is the reading goroutine: it deals out answers until the connection
// ends, and returns why.
func (c *Conn) readLoop() error {
	var idle time.Duration // without a call
	var made uint64
	pinged := false
	for {
		h, err := c.in.next()
		if errors.Is(err, errQuiet) {
			if since := c.probe.Load(); since != 0 {
				if time.Since(time.Unix(0, since)) < c.limits.Probe/2 {
					continue // the wait that ended was an earlier one
				}
				pinged = true
			}
			if pinged {
				return sundog.Errorf(sundog.Unavailable, "no sign of life from %s: %w", c.peer.Addr, os.ErrDeadlineExceeded)
			}
			now, busy := c.usage()
			if now != made || busy {
				idle = 0
			} else if idle += c.limits.KeepAlive; idle >= c.limits.Idle {
				return sundog.Errorf(sundog.Unavailable, "closed after %v without a call", idle)
			}
			made = now
			c.in.rest()
			c.ping()
			pinged = true
			continue
		}
		if err != nil {
			return err
		}
		pinged = false
		c.heard.Add(1)
		if c.probe.Load() != 0 {
			c.in.setQuiet(c.limits.KeepAlive)
			c.probe.Store(0)
		}
		c.metrics.frameIn(lengthSize + int(h.length))
		if err := c.deliver(&h); err != nil {
			return err
		}
	}
}

// deliver reads the body of an answer and ends its call. A call stays in the
// table while its answer is on its way, so that its deadline can still end it.
func (c *Conn) deliver(h *header) error {
	if h.flags&flagResponse == 0 {
		return sundog.Errorf(sundog.Corrupt, "a request where an answer belongs")
	}
	if !c.in.has(h.body()) && !c.waits(h.id) {
		return c.in.skip(h.body())
	}
	body, err := c.in.body(h.body())
	if err != nil {
		return err
	}
	k := c.remove(h.id)
	if k == nil {
		return nil
	}
	if h.flags&flagError == 0 {
		k.finish(Reply{Epoch: h.epoch, Body: body}, nil)
		return nil
	}
	remote, _, err := DecodeError(body)
	if err != nil {
		k.finish(Reply{Epoch: h.epoch}, sundog.Errorf(sundog.Unknown, "an answer that cannot be read: %w", err))
		return err
	}
	k.finish(Reply{Epoch: h.epoch}, remote)
	return nil
}

// settle ends what is still in flight when the connection has ended and nothing
// is being written any more: the state of each message tells which end.
func (c *Conn) settle() {
	c.mu.Lock()
	left := c.table.takeAll()
	cause := c.err
	c.mu.Unlock()
	for _, k := range left {
		if k.msg.state.Load() == msgWritten {
			k.finish(Reply{}, sundog.Errorf(sundog.Unknown, "sent to %s, connection lost before the answer: %w", c.peer.Addr, cause))
		} else {
			k.finish(Reply{}, c.notSent(cause))
		}
	}
	close(c.done)
}
