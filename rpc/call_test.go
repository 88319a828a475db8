package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

func TestCallsInterleaveAndKeepTheirAnswers(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Epoch: func() sundog.Epoch { return 42 }})
	c := dialTest(t, addr, DialConfig{})
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := range 50 {
				// Sizes on both sides of what is copied, of a read buffer and of
				// what is allocated on a header's word.
				size := []int{0, 1, copyMax, copyMax + 1, readBufMax * 2, trustMax + 1}[i%6]
				body := make([]byte, size)
				for j := range body {
					body[j] = byte(j*w + i)
				}
				r, err := c.Call(t.Context(), MethodGet, 1, Body{body[:size/2], nil, body[size/2:]})
				if err != nil || r.Epoch != 42 || sha256.Sum256(r.Body) != sha256.Sum256(body) {
					t.Errorf("call %d of %d bytes: epoch %d, %d bytes, %v", i, size, r.Epoch, len(r.Body), err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, c.table.used)
}

func TestErrorsCrossTheWire(t *testing.T) {
	var fail error
	_, addr := startServer(t, ServerConfig{
		Epoch:   func() sundog.Epoch { return 9 },
		Handler: HandlerFunc(func(context.Context, *Request) (Body, error) { return nil, fail }),
	})
	c := dialTest(t, addr, DialConfig{})
	for kind := sundog.Invalid; kind <= sundog.Internal; kind++ {
		sent := &sundog.Error{Kind: kind, Msg: "why", Epoch: 8, Leader: 5, Used: 3, Limit: 4}
		fail = fmt.Errorf("wrapped: %w", sent)
		r, err := c.Call(within(t, patient), MethodMutate, 1, nil)
		require.ErrorIs(t, err, kind)
		require.Equal(t, *sent, *sundog.AsError(err))
		require.Equal(t, sundog.Epoch(9), r.Epoch)
	}
	fail = errors.New("plain")
	_, err := c.Call(within(t, patient), MethodMutate, 1, nil)
	require.ErrorIs(t, err, sundog.Internal)
}

func TestRequestCarriesWhatTheCallerSaid(t *testing.T) {
	got := make(chan Request, 1)
	_, addr := startServer(t, ServerConfig{Handler: HandlerFunc(func(ctx context.Context, r *Request) (Body, error) {
		d, ok := ctx.Deadline()
		if !ok || !d.Equal(r.Deadline) {
			return nil, sundog.Errorf(sundog.Internal, "the context's deadline is %v", d)
		}
		got <- *r
		return nil, nil
	})})
	c := dialTest(t, addr, DialConfig{})
	ctx := within(t, patient)
	want, _ := ctx.Deadline()
	_, err := c.Call(ctx, MethodScan, 77, Body{[]byte("ab"), []byte("c")})
	require.NoError(t, err)
	r := <-got
	require.Equal(t, MethodScan, r.Method)
	require.Equal(t, sundog.Epoch(77), r.Epoch)
	require.Equal(t, "abc", string(r.Body))
	require.WithinDuration(t, want, r.Deadline, patient/5)
	require.False(t, r.Peer.IsNode)
}

func TestNodeMethodsAreForNodes(t *testing.T) {
	var reached atomic.Int64
	_, addr := startServer(t, ServerConfig{Handler: HandlerFunc(func(context.Context, *Request) (Body, error) {
		reached.Add(1)
		return nil, nil
	})})
	client := dialTest(t, addr, DialConfig{})
	for _, m := range []Method{MethodFound, MethodReplicaCheck, 1000} {
		_, err := client.Call(within(t, patient), m, 0, Body{make([]byte, 100_000)})
		require.ErrorIs(t, err, sundog.Denied)
	}
	require.Zero(t, reached.Load())
	node := dialTest(t, addr, DialConfig{Identity: nodeIdentity(1)})
	_, err := node.Call(within(t, patient), MethodFound, 0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, reached.Load())
}

func TestTooLargeIsSaidBeforeSending(t *testing.T) {
	limits := Limits{MaxFrame: 10_000}
	_, addr := startServer(t, ServerConfig{Limits: limits, Handler: HandlerFunc(func(_ context.Context, r *Request) (Body, error) {
		return Body{make([]byte, int(r.Body[0])*100)}, nil
	})})
	c := dialTest(t, addr, DialConfig{Limits: limits})
	_, err := c.Call(within(t, patient), MethodGet, 0, Body{make([]byte, 10_000)})
	require.ErrorIs(t, err, sundog.TooLarge)
	require.EqualValues(t, 10_000, sundog.AsError(err).Limit)
	_, err = c.Call(within(t, patient), MethodGet, 0, Body{{200}})
	require.ErrorIs(t, err, sundog.TooLarge, "an answer over the limit")
	_, err = c.Call(within(t, patient), MethodGet, 0, Body{{90}})
	require.NoError(t, err)
}

// TestPanicsStayWithTheirRequest is CASES 46.
func TestPanicsStayWithTheirRequest(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics, err := NewMetrics(reg)
	require.NoError(t, err)
	_, addr := startServer(t, ServerConfig{Metrics: metrics, Handler: HandlerFunc(func(_ context.Context, r *Request) (Body, error) {
		switch string(r.Body) {
		case "panic":
			var m map[string]int
			m["x"] = 1
		case "exit":
			runtime.Goexit()
		}
		return Body{r.Body}, nil
	})})
	c := dialTest(t, addr, DialConfig{})
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			body := []string{"panic", "exit", "fine"}[i%3]
			r, err := c.Call(t.Context(), MethodGet, 0, Body{[]byte(body)})
			if body == "fine" && (err != nil || string(r.Body) != "fine") || body != "fine" && sundog.KindOf(err) != sundog.Internal {
				t.Errorf("%s: %q, %v", body, r.Body, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 20, metrics.panics.Load())
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	require.Equal(t, 20.0, values["sundog_rpc_panics_total"])
	require.Equal(t, 20.0, values["sundog_rpc_errors_total internal"])
	require.Equal(t, 30.0, values["sundog_rpc_requests_total get"])
	require.Equal(t, 1.0, values["sundog_rpc_connections server"])
	_, err = NewMetrics(reg)
	require.ErrorIs(t, err, sundog.Internal, "registered twice")
}

// TestServerDiesWithCallsInFlight is CASES 28: every call ends exactly once,
// with a typed error, and those that went out say Unknown.
func TestServerDiesWithCallsInFlight(t *testing.T) {
	const n = 100
	var in sync.WaitGroup
	in.Add(n)
	s, addr := startServer(t, ServerConfig{Handler: HandlerFunc(func(ctx context.Context, _ *Request) (Body, error) {
		in.Done()
		<-ctx.Done()
		return nil, ctx.Err()
	})})
	c := dialTest(t, addr, DialConfig{})
	ends := make(chan error, 2*n)
	for range n {
		go func() {
			_, err := c.Call(t.Context(), MethodMutate, 0, Body{make([]byte, 64)})
			ends <- err
		}()
	}
	in.Wait()
	require.NoError(t, s.Close())
	for range n {
		require.ErrorIs(t, <-ends, sundog.Unknown)
	}
	<-c.Done()
	require.Error(t, c.Err())
	require.Empty(t, ends)
	_, err := c.Call(within(t, patient), MethodMutate, 0, nil)
	require.ErrorIs(t, err, sundog.Unavailable, "a call after the end was not executed")
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	entered := make(chan struct{})
	_, addr := startServer(t, ServerConfig{Handler: HandlerFunc(func(ctx context.Context, _ *Request) (Body, error) {
		close(entered)
		<-ctx.Done() // ends with the connection
		return nil, ctx.Err()
	})})
	c := dialTest(t, addr, DialConfig{})
	end := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), MethodMutate, 0, nil)
		end <- err
	}()
	<-entered
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-end, sundog.Unknown)
	require.ErrorIs(t, c.Err(), sundog.Closed)
}

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

func TestInflightIsBounded(t *testing.T) {
	for name, limits := range map[string]Limits{
		"by number": {MaxInflight: 4},
		"by bytes":  {MaxInflightBytes: 4 * (headerSize + 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			var now, most atomic.Int64
			release := make(chan struct{})
			_, addr := startServer(t, ServerConfig{Limits: limits, Handler: HandlerFunc(func(context.Context, *Request) (Body, error) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-release
				now.Add(-1)
				return nil, nil
			})})
			c := dialTest(t, addr, DialConfig{})
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					_, err := c.Call(t.Context(), MethodMutate, 0, Body{make([]byte, 1000)})
					if err != nil {
						t.Error(err)
					}
				})
			}
			require.Eventually(t, func() bool { return now.Load() == 4 }, patient, time.Millisecond)
			close(release)
			wg.Wait()
			require.EqualValues(t, 4, most.Load())
		})
	}
}

func TestControlMessages(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Epoch: func() sundog.Epoch { return 4 }, Handler: HandlerFunc(serveMap)})
	c := dialTest(t, addr, DialConfig{})
	testInvoke(t, c)
}
