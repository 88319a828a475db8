package raftgroup

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// network joins muxes in memory or over loopback, and can cut them apart.
type network struct {
	loopback bool

	mu    sync.Mutex // guards what follows
	nodes map[sundog.NodeID]*Mux
	// cut tells how the way between two nodes is broken.
	cut   map[[2]sundog.NodeID]cutKind
	conns map[*cutConn]struct{}
	dials int
}

type cutKind int

const (
	whole  cutKind = iota
	hard           // connections are reset, dials refused
	silent         // bytes vanish, dials hang
)

func newNetwork() *network {
	return &network{
		nodes: make(map[sundog.NodeID]*Mux), cut: make(map[[2]sundog.NodeID]cutKind), conns: make(map[*cutConn]struct{}),
	}
}

// add makes a node's mux.
func (n *network) add(t testing.TB, id sundog.NodeID, cfg MuxConfig) *Mux {
	cfg.Self = id
	cfg.Dial = func(ctx context.Context, to sundog.NodeID, lane string) (net.Conn, error) {
		return n.dial(ctx, id, to, lane)
	}
	m := NewMux(cfg)
	n.mu.Lock()
	n.nodes[id] = m
	n.mu.Unlock()
	return m
}

// remove takes a node off the network, as its death does.
func (n *network) remove(id sundog.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, id)
}

func pair(a, b sundog.NodeID) [2]sundog.NodeID { return [2]sundog.NodeID{min(a, b), max(a, b)} }

// set breaks or heals the way between two nodes. Connections whose bytes have
// vanished are dead when the way heals.
func (n *network) set(a, b sundog.NodeID, kind cutKind) {
	n.mu.Lock()
	was := n.cut[pair(a, b)]
	n.cut[pair(a, b)] = kind
	var dead []*cutConn
	for c := range n.conns {
		if c.pair == pair(a, b) && (kind == hard || was == silent) {
			dead = append(dead, c)
		}
	}
	n.mu.Unlock()
	for _, c := range dead {
		_ = c.Close()
	}
}

// isolate breaks all ways of a node.
func (n *network) isolate(id sundog.NodeID, kind cutKind) {
	n.mu.Lock()
	var others []sundog.NodeID
	for o := range n.nodes {
		if o != id {
			others = append(others, o)
		}
	}
	n.mu.Unlock()
	for _, o := range others {
		n.set(id, o, kind)
	}
}

func (n *network) dial(ctx context.Context, from, to sundog.NodeID, lane string) (net.Conn, error) {
	n.mu.Lock()
	m, kind := n.nodes[to], n.cut[pair(from, to)]
	n.dials++
	n.mu.Unlock()
	if kind == silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m == nil || kind == hard {
		return nil, sundog.Errorf(sundog.Unavailable, "connection refused")
	}
	a, b, err := n.connect()
	if err != nil {
		return nil, err
	}
	ca, cb := n.wrap(a, from, to), n.wrap(b, from, to)
	if err := m.Accept(cb, from, lane); err != nil {
		_ = ca.Close()
		_ = cb.Close()
		return nil, err
	}
	return ca, nil
}

func (n *network) connect() (net.Conn, net.Conn, error) {
	if !n.loopback {
		a, b := net.Pipe()
		return a, b, nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := ln.Accept()
	return a, b, err
}

func (n *network) wrap(c net.Conn, from, to sundog.NodeID) net.Conn {
	w := &cutConn{Conn: c, net: n, pair: pair(from, to)}
	n.mu.Lock()
	n.conns[w] = struct{}{}
	n.mu.Unlock()
	return w
}

// cutConn is a connection whose bytes vanish while its way is silently cut.
type cutConn struct {
	net.Conn
	net  *network
	pair [2]sundog.NodeID
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	gone := c.net.cut[c.pair] == silent
	c.net.mu.Unlock()
	if gone {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

func (n *network) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// eventually polls a condition with a deadline far above what is expected.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "in vain: %s", what)
	}
}

// bufferConn is a connection that keeps what is written.
type bufferConn struct{ b *bytes.Buffer }

func (c bufferConn) Read(b []byte) (int, error)       { return c.b.Read(b) }
func (c bufferConn) Write(b []byte) (int, error)      { return c.b.Write(b) }
func (c bufferConn) Close() error                     { return nil }
func (c bufferConn) LocalAddr() net.Addr              { return nil }
func (c bufferConn) RemoteAddr() net.Addr             { return nil }
func (c bufferConn) SetDeadline(time.Time) error      { return nil }
func (c bufferConn) SetReadDeadline(time.Time) error  { return nil }
func (c bufferConn) SetWriteDeadline(time.Time) error { return nil }
