package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// countingConn counts the write calls on a connection.
type countingConn struct {
	net.Conn
	writes, bytes atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// countingListener hands out counting connections.
type countingListener struct {
	net.Listener
	last atomic.Pointer[countingConn]
}

func (l *countingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &countingConn{Conn: nc}
	l.last.Store(c)
	return c, nil
}

// TestOneWriteAMessage is CASES 33: header and body, also a body in parts too
// large to be copied, leave in one write; on both sides.
func TestOneWriteAMessage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	counting := &countingListener{Listener: l}
	startServerOn(t, ServerConfig{}, counting)
	var near *countingConn
	c := dialTest(t, l.Addr().String(), DialConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		near = &countingConn{Conn: nc}
		return near, err
	}})
	far := counting.last.Load()
	nearBefore, farBefore := near.writes.Load(), far.writes.Load()
	const n = 50
	for i := range n {
		_, err := c.Call(within(t, patient), MethodGet, 0, Body{[]byte("head"), make([]byte, i*400), []byte("tail")})
		require.NoError(t, err)
	}
	require.EqualValues(t, n, near.writes.Load()-nearBefore)
	require.EqualValues(t, n, far.writes.Load()-farBefore)
}

// TestWaitingMessagesShareAWrite has the first message stuck in a pipe while
// others queue: they all leave in one write.
func TestWaitingMessagesShareAWrite(t *testing.T) {
	c, far := pipes(t)
	count := &countingConn{Conn: c.nc}
	c.out.conn = count
	var wg sync.WaitGroup
	const n = 64
	for range n {
		wg.Go(func() {
			if _, err := c.Call(t.Context(), MethodGet, 0, Body{[]byte("x")}); err != nil {
				t.Error(err)
			}
		})
	}
	// Nothing was read yet: one message (or the few that came with it) is stuck in
	// the first write, the rest waits for the second.
	require.Eventually(t, func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.table.used == n && count.writes.Load() == 1
	}, patient, patient/10000)
	frames := newFrameReader(far, c.limits, patient)
	for range n {
		h, err := frames.next()
		require.NoError(t, err)
		require.NoError(t, frames.skip(h.body()))
		h.flags = flagResponse
		_, err = far.Write(h.append(nil, 0))
		require.NoError(t, err)
	}
	wg.Wait()
	require.LessOrEqual(t, count.writes.Load(), int64(3))
	require.Eventually(t, func() bool { return count.bytes.Load() == n*(headerSize+1) }, patient, patient/10000)
}
