package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

func newTestPool(t *testing.T, cfg DialConfig) *Pool {
	p := NewPool(cfg)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestPoolDialsOnce(t *testing.T) {
	_, addr := startServer(t, ServerConfig{})
	var dials atomic.Int64
	p := newTestPool(t, DialConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			c, err := p.Get(t.Context(), addr)
			if err == nil {
				_, err = c.Call(t.Context(), MethodGet, 0, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, dials.Load())
}

// TestPoolFindsTheServerAgain is the second half of CASES 27 and 28: after a
// refusal, and after the server's death, a later call on the same pool works.
func TestPoolFindsTheServerAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	p := newTestPool(t, DialConfig{})
	works := func() bool {
		c, err := p.Get(within(t, patient), addr)
		if err == nil {
			_, err = c.Call(within(t, patient), MethodGet, 0, nil)
		}
		if err != nil {
			require.ErrorIs(t, err, sundog.Unavailable)
		}
		return err == nil
	}
	require.False(t, works())
	for range 3 {
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		s := NewServer(ServerConfig{Handler: echo})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		require.Eventually(t, works, patient, 5*time.Millisecond)
		c, err := p.Get(within(t, patient), addr)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		<-c.Done()
		require.False(t, works())
	}
}

func TestPoolFailsFastInBackoff(t *testing.T) {
	var dials atomic.Int64
	p := newTestPool(t, DialConfig{Dial: func(context.Context, string) (net.Conn, error) {
		dials.Add(1)
		return nil, sundog.Errorf(sundog.Unavailable, "refused")
	}})
	start := time.Now()
	for time.Since(start) < 300*time.Millisecond {
		_, err := p.Get(within(t, patient), "x")
		require.ErrorIs(t, err, sundog.Unavailable)
	}
	require.Less(t, dials.Load(), int64(12), "50 ms, doubled, jittered")
	require.Greater(t, dials.Load(), int64(1))
	for failures := range 100 {
		require.LessOrEqual(t, backoff(failures), backoffMax)
		require.GreaterOrEqual(t, backoff(failures), backoffMin/2)
	}
}

// TestPoolIsNotHeldUpByADeadAddress has one address that never answers: others
// go on, callers of it keep their deadlines, Close ends the dial.
func TestPoolIsNotHeldUpByADeadAddress(t *testing.T) {
	_, addr := startServer(t, ServerConfig{})
	p := newTestPool(t, DialConfig{Limits: Limits{Handshake: time.Hour}, Dial: func(ctx context.Context, a string) (net.Conn, error) {
		if a == "dead" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", a)
	}})
	_, err := p.Get(within(t, 20*time.Millisecond), "dead")
	require.ErrorIs(t, err, sundog.Unavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = p.Get(within(t, patient), addr)
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Get(t.Context(), "dead")
		waiting <- err
	}()
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-waiting, sundog.Closed)
	_, err = p.Get(within(t, patient), addr)
	require.ErrorIs(t, err, sundog.Closed)
}
