package rpc

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// session is the server's side of one connection that carries frames.
type session struct {
	server *Server
	nc     net.Conn
	peer   Peer
	in     *frameReader
	out    *outbound
	gate   *gate
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	work   sync.WaitGroup // requests in service
}

// serveFrames serves a connection that has shaken hands, until it ends, and
// returns when nothing of it is left.
func (s *Server) serveFrames(nc net.Conn, peer Peer) {
	x := &session{
		server: s, nc: nc, peer: peer,
		in:   newFrameReader(nc, s.limits, s.limits.Idle),
		out:  newOutbound(nc, s.limits, s.cfg.Metrics),
		gate: newGate(s.limits),
	}
	x.ctx, x.cancel = context.WithCancel(s.ctx)
	x.out.broken = func(err error) { x.end(err) }
	x.out.finished = func(m *message) {
		held := m.held
		m.unref()
		if held > 0 {
			x.gate.leave(held)
		}
	}
	x.out.stopped = func() {}
	x.end(x.readLoop())
	x.work.Wait()
	x.out.writers.Wait()
}

// end closes the connection; the first reason is logged.
func (x *session) end(err error) {
	if x.ctx.Err() == nil {
		x.server.ended(x.peer, err)
	}
	x.cancel()
	_ = x.nc.Close() // there is nobody to tell
	x.out.stop()
}

// readLoop takes requests in until the connection ends, and returns why.
func (x *session) readLoop() error {
	for {
		h, err := x.in.next()
		if errors.Is(err, errQuiet) {
			if x.gate.empty() {
				return sundog.Errorf(sundog.Unavailable, "idle")
			}
			x.in.rest()
			continue
		}
		if err != nil {
			return err
		}
		if h.flags != 0 {
			return sundog.Errorf(sundog.Corrupt, "an answer where a request belongs")
		}
		x.server.cfg.Metrics.frameIn(lengthSize + int(h.length))
		held := int64(lengthSize) + int64(h.length)
		if !x.gate.enter(held, x.ctx.Done()) {
			return x.ctx.Err()
		}
		if err := x.take(&h, held); err != nil {
			return err
		}
	}
}

// take reads a request's body and starts its service, or answers at once what
// needs none.
func (x *session) take(h *header, held int64) error {
	switch {
	case h.method == MethodPing:
		if err := x.in.skip(h.body()); err != nil {
			return err
		}
		x.answer(h.method, h.id, held, nil, nil)
		return nil
	case NodeOnly(h.method) && !x.peer.IsNode:
		if err := x.in.skip(h.body()); err != nil {
			return err
		}
		x.answer(h.method, h.id, held, nil, sundog.Errorf(sundog.Denied, "%s is for nodes; this connection did not prove to be one", h.method))
		return nil
	}
	r := &inbound{id: h.id, parent: x.ctx}
	r.req = Request{Method: h.method, Epoch: h.epoch, Peer: x.peer}
	if h.budget != 0 {
		r.req.Deadline = time.Now().Add(time.Duration(h.budget) * time.Millisecond)
	}
	var err error
	if r.req.Body, err = x.in.body(h.body()); err != nil {
		return err
	}
	x.work.Add(1)
	go x.serve(r, held)
	return nil
}

// serve is the goroutine of one request. What the handler does, and be it a
// panic or the end of its goroutine, stays within this request.
func (x *session) serve(r *inbound, held int64) {
	defer x.work.Done()
	metrics := x.server.cfg.Metrics
	var start time.Time
	if metrics != nil || !r.req.Deadline.IsZero() {
		start = time.Now()
	}
	if d := r.req.Deadline; !d.IsZero() && !start.Before(d) {
		metrics.expire()
		x.answer(r.req.Method, r.id, held, nil, expired())
		return
	}
	var body Body
	err := error(errHandlerEnded)
	defer func() {
		r.end()
		if err == errHandlerEnded {
			body, err = nil, x.failed(r, recover())
		}
		if metrics != nil {
			metrics.served(r.req.Method, time.Since(start))
		}
		x.answer(r.req.Method, r.id, held, body, err)
	}()
	body, err = x.server.cfg.Handler.ServeRPC(r, &r.req)
}

// errHandlerEnded stands for a handler that did not return.
var errHandlerEnded = errors.New("the handler did not return")

// failed counts and logs a handler that did not return and makes the error that
// its caller sees.
func (x *session) failed(r *inbound, cause any) error {
	x.server.cfg.Metrics.panicked()
	x.server.log.Error("handler panicked", "method", r.req.Method.String(), "peer", x.peer.Addr, "panic", cause, "stack", string(debug.Stack()))
	return sundog.Errorf(sundog.Internal, "the handler of %s failed; the node's log has more", r.req.Method)
}

// answer queues the answer to a request that holds that much of the gate.
func (x *session) answer(method Method, id uint64, held int64, body Body, err error) {
	h := header{flags: flagResponse, method: method, id: id, epoch: x.server.epoch()}
	if size := afterLength + body.Len(); err == nil && size > x.server.limits.MaxFrame {
		err = tooLarge("answer", int64(size), int64(x.server.limits.MaxFrame))
	}
	if err != nil {
		e := sundog.AsError(err)
		x.server.cfg.Metrics.answeredError(e.Kind)
		h.flags |= flagError
		body = Body{AppendError(nil, e)}
	}
	m := newMessage(&h, body, 1)
	m.held = int64(m.size)
	x.gate.swap(held, m.held)
	if !x.out.send(m) {
		m.unref() // the connection has ended, and the gate with it
	}
}
