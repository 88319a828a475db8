package rpc

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// deaf accepts connections, shakes hands as a server does and then hands the
// streams over without reading them.
func deaf(t *testing.T) (addr string, conns <-chan net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s := NewServer(ServerConfig{Handler: echo})
	out := make(chan net.Conn, 16)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = nc.Close() })
			if _, _, _, err := s.receive(nc); err == nil {
				_ = nc.SetDeadline(time.Time{})
				out <- nc
			}
		}
	}()
	return l.Addr().String(), out
}

func TestSentWithoutAnswerIsUnknown(t *testing.T) {
	addr, _ := deaf(t)
	c := dialTest(t, addr, DialConfig{})
	_, err := c.Call(within(t, 50*time.Millisecond), MethodMutate, 0, Body{[]byte("x")})
	require.ErrorIs(t, err, sundog.Unknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Call(ctx, MethodMutate, 0, nil)
	require.ErrorIs(t, err, sundog.Unavailable, "ended before it was sent")
	require.ErrorIs(t, err, context.Canceled)
}

// TestDeadlineOfABodyThePeerDoesNotRead has a large body stuck in the socket
// when its call's time is up: the call returns in time, its memory is its
// caller's again, and yet the stream stays whole for whoever reads it later.
func TestDeadlineOfABodyThePeerDoesNotRead(t *testing.T) {
	addr, conns := deaf(t)
	limits := Limits{MaxFrame: 64 << 20, Probe: time.Hour} // the peer is slow, not dead
	c := dialTest(t, addr, DialConfig{Limits: limits})
	peer := <-conns
	body := make([]byte, 32<<20) // far more than sockets buffer
	for i := range body {
		body[i] = byte(i >> 7)
	}
	want := sha256.Sum256(body)
	start := time.Now()
	_, err := c.Call(within(t, 100*time.Millisecond), MethodMutate, 0, Body{body[:100], body[100:]})
	require.ErrorIs(t, err, sundog.Unknown)
	require.Less(t, time.Since(start), 10*time.Second)
	clear(body) // ours again
	// Queued behind it, and given up: never written.
	_, err = c.Call(within(t, 50*time.Millisecond), MethodMutate, 0, Body{[]byte("never")})
	require.ErrorIs(t, err, sundog.Unavailable)

	second := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), MethodGet, 0, Body{[]byte("second")})
		second <- err
	}()
	require.NoError(t, peer.SetDeadline(time.Now().Add(patient)))
	r := newFrameReader(peer, limits.WithDefaults(), patient)
	h, err := r.next()
	require.NoError(t, err)
	got, err := r.body(h.body())
	require.NoError(t, err)
	require.Equal(t, want, sha256.Sum256(got))
	for string(got) != "second" { // a ping may come first
		h, err = r.next()
		require.NoError(t, err)
		got, err = r.body(h.body())
		require.NoError(t, err)
		require.NotEqual(t, "never", string(got))
	}
	answer := header{flags: flagResponse, method: MethodGet, id: h.id}
	_, err = peer.Write(answer.append(nil, 0))
	require.NoError(t, err)
	require.NoError(t, <-second)
}

// pipes is a network of one server on synchronous, unbuffered pipes: a message
// is out exactly when the other side has read it.
func pipes(t *testing.T) (*Conn, net.Conn) {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	shaken := make(chan error, 1)
	go func() {
		_, _, _, err := NewServer(ServerConfig{Handler: echo}).receive(far)
		shaken <- err
	}()
	c := dialTest(t, "pipe", DialConfig{Dial: func(context.Context, string) (net.Conn, error) { return near, nil }})
	require.NoError(t, <-shaken)
	require.NoError(t, far.SetDeadline(time.Time{}))
	return c, far
}

// TestLostWhileWriting tells apart three calls on a connection that dies: read
// whole by the peer (Unknown), cut in the middle and still queued (both
// Unavailable: what is not whole cannot be executed).
func TestLostWhileWriting(t *testing.T) {
	c, far := pipes(t)
	call := func(body string) chan error {
		end := make(chan error, 1)
		go func() {
			_, err := c.Call(t.Context(), MethodMutate, 0, Body{[]byte(body)})
			end <- err
		}()
		return end
	}
	whole := call("first")
	_, err := io.ReadFull(far, make([]byte, headerSize+5))
	require.NoError(t, err)
	cut := call("second")
	_, err = io.ReadFull(far, make([]byte, headerSize+5)) // all but one byte
	require.NoError(t, err)
	queued := call("third")
	require.Eventually(t, func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return len(c.out.queue) == 1
	}, patient, time.Millisecond)
	require.NoError(t, far.Close())
	require.ErrorIs(t, <-whole, sundog.Unknown)
	require.ErrorIs(t, <-cut, sundog.Unavailable)
	require.ErrorIs(t, <-queued, sundog.Unavailable)
}

func TestLateAnswersFindNobody(t *testing.T) {
	c, far := pipes(t)
	frames := newFrameReader(far, c.limits, patient)
	go func() { // answers the first request when the second comes, then the second
		var first header
		for {
			h, err := frames.next()
			if err != nil || frames.skip(h.body()) != nil {
				return
			}
			h.flags = flagResponse
			switch {
			case h.method == MethodPing:
				_, _ = far.Write(h.append(nil, 0))
			case first.id == 0:
				first = h
			default:
				_, _ = far.Write(append(first.append(nil, 5), "first"...))
				_, _ = far.Write(append(h.append(nil, 6), "second"...))
			}
		}
	}()
	_, err := c.Call(within(t, 50*time.Millisecond), MethodMutate, 0, nil)
	require.ErrorIs(t, err, sundog.Unknown)
	r, err := c.Call(within(t, patient), MethodMutate, 0, nil)
	require.NoError(t, err)
	require.Equal(t, "second", string(r.Body))
}
