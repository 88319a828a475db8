package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
			panic("on purpose")
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
