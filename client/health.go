package client

import (
	"context"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// The watch over nodes that take requests and say nothing.
const (
	// silentAfter is how long a request waits before its connection is pinged.
	silentAfter = 1500 * time.Millisecond
	// pingWithin is how long the answer to that ping may take.
	pingWithin = time.Second
	// restFor is how long a node that was silent, or not reached, is passed over
	// where another can be asked.
	restFor = time.Second
)

// health remembers which nodes did not answer lately, for all calls of a client.
// A stopped process or a dropped route shows by nothing at all: without it every
// call would find out by itself, each for as long as its deadline allows.
type health struct {
	resting sync.Map // sundog.NodeID -> time.Time, until when
	pinged  sync.Map // *rpc.Conn -> struct{}, one ping at a time
}

// rest passes node over for a while.
func (h *health) rest(node sundog.NodeID) { h.resting.Store(node, time.Now().Add(restFor)) }

// back ends a node's rest.
func (h *health) back(node sundog.NodeID) {
	if _, ok := h.resting.Load(node); ok {
		h.resting.Delete(node)
	}
}

// rests reports whether node is passed over now.
func (h *health) rests(node sundog.NodeID) bool {
	until, ok := h.resting.Load(node)
	return ok && time.Now().Before(until.(time.Time))
}

// watch sees to it that a request which waits on conn does not wait for a dead
// peer; stop ends it.
func (c *Client) watch(node sundog.NodeID, conn *rpc.Conn) (stop func() bool) {
	return time.AfterFunc(silentAfter, func() { c.ping(node, conn) }).Stop
}

// ping gives conn up when nothing comes back: the calls on it end, mutations
// with Unknown, reads to be made elsewhere.
func (c *Client) ping(node sundog.NodeID, conn *rpc.Conn) {
	if !c.hold() {
		return
	}
	defer c.calls.Done()
	if _, busy := c.health.pinged.LoadOrStore(conn, struct{}{}); busy {
		return
	}
	defer c.health.pinged.Delete(conn)
	ctx, cancel := context.WithTimeout(c.life, pingWithin)
	defer cancel()
	_, err := conn.Call(ctx, rpc.MethodPing, c.epoch(), nil)
	if err == nil || c.closed() {
		return
	}
	c.log.Debug("node is silent", "node", node, "error", err)
	c.health.rest(node)
	_ = conn.Close() // its calls know why
	c.startRefresh()
}
