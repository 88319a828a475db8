package rpc

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// pipeListener is a listener of in-process pipes, for tests in virtual time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}
func (l *pipeListener) Addr() net.Addr { return nil }

func (l *pipeListener) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	l.conns <- far
	return near, nil
}

// inVirtualTime runs f with a server on pipes in a bubble of virtual time.
func inVirtualTime(t *testing.T, cfg ServerConfig, f func(t *testing.T, s *Server, l *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		if cfg.Handler == nil {
			cfg.Handler = echo
		}
		s, l := NewServer(cfg), newPipeListener()
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		f(t, s, l)
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
}

// TestIdleCostsNothing is CASES 36 in virtual time: an idle connection sends a
// ping every half minute and nothing else, and is given up at last.
func TestIdleCostsNothing(t *testing.T) {
	metrics := &Metrics{}
	inVirtualTime(t, ServerConfig{Metrics: metrics}, func(t *testing.T, s *Server, l *pipeListener) {
		c, err := Dial(t.Context(), "pipe", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		_, err = c.Call(t.Context(), MethodGet, 0, nil)
		require.NoError(t, err)
		before := metrics.frames[dirIn].Load()
		time.Sleep(4 * time.Minute)
		pings := metrics.frames[dirIn].Load() - before
		require.GreaterOrEqual(t, pings, int64(7))
		require.LessOrEqual(t, pings, int64(11), "the waits are up to a quarter shorter")
		_, err = c.Call(t.Context(), MethodGet, 0, nil)
		require.NoError(t, err)
		time.Sleep(7 * time.Minute)
		<-c.Done()
		require.ErrorContains(t, c.Err(), "without a call")
		require.NoError(t, c.Close())
	})
}

// TestSilentClientIsClosed has a peer that shakes hands and is never heard of
// again.
func TestSilentClientIsClosed(t *testing.T) {
	inVirtualTime(t, ServerConfig{}, func(t *testing.T, s *Server, l *pipeListener) {
		nc, _, err := dial(t.Context(), "pipe", "", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		start := time.Now()
		_, err = nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.InDelta(t, 5, time.Since(start).Minutes(), 1.5)
		require.NoError(t, nc.Close())
	})
}

func TestHalfAFrameIsNotWaitedFor(t *testing.T) {
	metrics := &Metrics{}
	inVirtualTime(t, ServerConfig{Metrics: metrics}, func(t *testing.T, s *Server, l *pipeListener) {
		nc, _, err := dial(t.Context(), "pipe", "", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		_, err = nc.Write((&header{method: MethodGet, id: 1}).append(nil, 100))
		require.NoError(t, err)
		start := time.Now()
		_, err = nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.InDelta(t, 20, time.Since(start).Seconds(), 6)
		require.NoError(t, nc.Close())
		synctest.Wait()
		require.EqualValues(t, 1, metrics.stalled.Load())
	})
}

// TestUnreadAnswersAreNotWaitedFor has a peer ask and never read: its connection
// ends, the memory of the answers with it.
func TestUnreadAnswersAreNotWaitedFor(t *testing.T) {
	inVirtualTime(t, ServerConfig{}, func(t *testing.T, s *Server, l *pipeListener) {
		nc, _, err := dial(t.Context(), "pipe", "", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		for id := range uint64(3) {
			_, err = nc.Write((&header{method: MethodGet, id: id}).append(nil, 0))
			require.NoError(t, err)
		}
		time.Sleep(30 * time.Second)
		_, err = nc.Write([]byte{0})
		require.Error(t, err, "still open")
		require.NoError(t, nc.Close())
	})
}

// TestExpiredRequestsAreNotServed lets a request's budget pass while its body is
// on the way.
func TestExpiredRequestsAreNotServed(t *testing.T) {
	var served atomic.Int64
	handler := HandlerFunc(func(context.Context, *Request) (Body, error) { served.Add(1); return nil, nil })
	inVirtualTime(t, ServerConfig{Handler: handler}, func(t *testing.T, s *Server, l *pipeListener) {
		nc, _, err := dial(t.Context(), "pipe", "", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		frames := newFrameReader(nc, Limits{}.WithDefaults(), time.Hour)
		for _, wait := range []time.Duration{time.Second, 3 * time.Second} {
			_, err = nc.Write((&header{method: MethodMutate, id: 1, budget: 2000}).append(nil, 1))
			require.NoError(t, err)
			time.Sleep(wait)
			_, err = nc.Write([]byte{0})
			require.NoError(t, err)
			h, err := frames.next()
			require.NoError(t, err)
			body, err := frames.body(h.body())
			require.NoError(t, err)
			if wait < 2*time.Second {
				require.EqualValues(t, flagResponse, h.flags)
				continue
			}
			remote, _, err := DecodeError(body)
			require.NoError(t, err)
			require.ErrorIs(t, remote, sundog.Timeout)
		}
		require.EqualValues(t, 1, served.Load())
		require.NoError(t, nc.Close())
	})
}

// TestDeadPeerIsGivenUp has the other side vanish without a word. A call that
// times out makes the connection doubtful, and it is given up soon; an idle one
// is given up after two keep-alive times.
func TestDeadPeerIsGivenUp(t *testing.T) {
	for name, called := range map[string]bool{"after a call": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, ServerConfig{}, func(t *testing.T, s *Server, l *pipeListener) {
				near, far := net.Pipe()
				go func() { _, _, _, _ = s.receive(far) }() // and then nothing
				c, err := Dial(t.Context(), "pipe", DialConfig{Dial: func(context.Context, string) (net.Conn, error) { return near, nil }})
				require.NoError(t, err)
				require.NoError(t, far.SetDeadline(time.Time{}))
				go func() { // a network that swallows everything
					b := make([]byte, 1<<10)
					for {
						if _, err := far.Read(b); err != nil {
							return
						}
					}
				}()
				start, limit := time.Now(), 65*time.Second
				if called {
					limit = 5 * time.Second
					_, err = c.Call(within(t, time.Second), MethodMutate, 0, nil)
					require.ErrorIs(t, err, sundog.Unknown)
				}
				<-c.Done()
				require.Less(t, time.Since(start), limit)
				require.ErrorIs(t, c.Err(), sundog.Unavailable)
				require.NoError(t, c.Close())
				require.NoError(t, far.Close())
			})
		})
	}
}

// TestSlowAnswersDoNotEndAConnection has calls time out on a server that is slow
// but alive: its pings are answered and the connection stays.
func TestSlowAnswersDoNotEndAConnection(t *testing.T) {
	handler := HandlerFunc(func(ctx context.Context, _ *Request) (Body, error) { <-ctx.Done(); return nil, ctx.Err() })
	inVirtualTime(t, ServerConfig{Handler: handler}, func(t *testing.T, s *Server, l *pipeListener) {
		c, err := Dial(t.Context(), "pipe", DialConfig{Dial: l.dial})
		require.NoError(t, err)
		for range 20 {
			_, err = c.Call(within(t, time.Second), MethodMutate, 0, nil)
			require.Error(t, err)
			time.Sleep(time.Second)
		}
		require.NoError(t, c.Err())
		require.NoError(t, c.Close())
	})
}

// TestHandlersContext checks the context that costs nothing until it is used.
func TestHandlersContext(t *testing.T) {
	var ends chan error // made in the bubble
	type key struct{}
	handler := HandlerFunc(func(ctx context.Context, r *Request) (Body, error) {
		if ctx.Err() != nil || ctx.Value(key{}) != nil {
			return nil, errors.New("not fresh")
		}
		switch string(r.Body) {
		case "done":
			<-ctx.Done()
			ends <- ctx.Err()
		case "derived":
			sub, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)
			defer cancel()
			<-sub.Done()
			ends <- sub.Err()
		case "poll":
			for ctx.Err() == nil {
				time.Sleep(time.Second)
			}
			ends <- ctx.Err()
		}
		return nil, ctx.Err()
	})
	inVirtualTime(t, ServerConfig{Handler: handler}, func(t *testing.T, s *Server, l *pipeListener) {
		ends = make(chan error, 3)
		for _, how := range []string{"done", "derived", "poll"} {
			c, err := Dial(t.Context(), "pipe", DialConfig{Dial: l.dial})
			require.NoError(t, err)
			start := time.Now()
			_, err = c.Call(within(t, 10*time.Second), MethodGet, 0, Body{[]byte(how)})
			require.Error(t, err)
			require.ErrorIs(t, <-ends, context.DeadlineExceeded, how)
			require.InDelta(t, 10, time.Since(start).Seconds(), 1.1, how)

			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Second)
				cancel()
				_ = c.Close()
			}()
			_, err = c.Call(ctx, MethodGet, 0, Body{[]byte(how)})
			require.ErrorIs(t, err, sundog.Unknown)
			require.ErrorIs(t, <-ends, context.Canceled, how+": the connection ended")
		}
	})
}
