package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// TestHostilePeers is CASES 26: whatever a peer sends, its own connection ends
// and nobody else notices.
func TestHostilePeers(t *testing.T) {
	metrics := &Metrics{}
	_, addr := startServer(t, ServerConfig{Metrics: metrics, Limits: Limits{Handshake: 300 * time.Millisecond, Stall: 300 * time.Millisecond}})
	good := dialTest(t, addr, DialConfig{})
	h := hello{minVersion: 1, maxVersion: 1, role: roleClient}
	greeting := seal(h.encode())
	frame := append((&header{method: MethodGet, id: 1}).append(nil, 5), "hello"...)
	oversize := bytes.Clone(frame)
	le.PutUint32(oversize, 1<<31)
	short := bytes.Clone(frame)
	le.PutUint32(short, afterLength-1)
	version := bytes.Clone(frame)
	version[4] = 99
	response := bytes.Clone(frame)
	response[5] = flagResponse
	longHello := append([]byte(magic), 0xff, 0xff)

	for name, bad := range map[string][]byte{
		"nothing":           nil,
		"one byte":          {0x8e},
		"garbage":           bytes.Repeat([]byte{0xaa}, 5000),
		"half a hello":      greeting[:20],
		"oversize hello":    longHello,
		"frames, no hello":  frame,
		"empty hello":       seal(nil),
		"two hellos":        append(bytes.Clone(greeting), greeting...),
		"half a header":     append(bytes.Clone(greeting), frame[:10]...),
		"half a body":       append(bytes.Clone(greeting), frame[:len(frame)-2]...),
		"oversize length":   append(bytes.Clone(greeting), oversize...),
		"short length":      append(bytes.Clone(greeting), short...),
		"unknown version":   append(bytes.Clone(greeting), version...),
		"answer to nothing": append(bytes.Clone(greeting), response...),
	} {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err, name)
		_, _ = nc.Write(bad) // it may be closed before all is written
		require.NoError(t, nc.SetReadDeadline(time.Now().Add(patient)))
		_, err = io.Copy(io.Discard, nc)
		if err != nil { // a reset is as good as an end, waiting is not
			require.NotErrorIs(t, err, context.DeadlineExceeded, name)
			require.NotContains(t, err.Error(), "i/o timeout", name)
		}
		require.NoError(t, nc.Close())
		_, err = good.Call(within(t, patient), MethodGet, 0, Body{[]byte(name)})
		require.NoError(t, err, "%s harmed another connection", name)
	}
	require.Eventually(t, func() bool { return metrics.conns[sideServer].Load() == 1 }, patient, time.Millisecond)
}

// TestTwoHundredAtOnce has 200 connections come at the same moment, half of them
// silent, half of them working.
func TestTwoHundredAtOnce(t *testing.T) {
	metrics := &Metrics{}
	_, addr := startServer(t, ServerConfig{Metrics: metrics})
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if i%2 == 0 {
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				_, _ = nc.Write([]byte{0x8e})
				return
			}
			c, err := Dial(t.Context(), addr, DialConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range 20 {
				if _, err := c.Call(t.Context(), MethodGet, 0, Body{[]byte("x")}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return metrics.conns[sideServer].Load() == 0 }, patient, time.Millisecond)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, patient, time.Millisecond)
	require.EqualValues(t, 200, metrics.accepted.Load())
}

func TestConnectionsOverTheLimitAreTold(t *testing.T) {
	metrics := &Metrics{}
	_, addr := startServer(t, ServerConfig{Metrics: metrics, Limits: Limits{MaxConns: 2}})
	first := dialTest(t, addr, DialConfig{})
	dialTest(t, addr, DialConfig{})
	_, err := Dial(within(t, patient), addr, DialConfig{})
	require.ErrorIs(t, err, sundog.Unavailable)
	require.ErrorContains(t, err, "2 connections already")
	require.EqualValues(t, 1, metrics.refused[refusedFull].Load())
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		c, err := Dial(within(t, patient), addr, DialConfig{})
		return err == nil && c.Close() == nil
	}, patient, 5*time.Millisecond)
}

// TestHugeClaimsAllocateLittle has many peers announce the largest frame and
// send nothing of it.
func TestHugeClaimsAllocateLittle(t *testing.T) {
	_, addr := startServer(t, ServerConfig{})
	claim := header{method: MethodGet, id: 1}
	h := hello{minVersion: 1, maxVersion: 1, role: roleClient}
	opening := append(seal(h.encode()), claim.append(nil, 4<<20)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 50
	for range n {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer nc.Close()
		_, err = nc.Write(opening)
		require.NoError(t, err)
		_, _, err = readHello(nc)
		require.NoError(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(n*(trustMax+100<<10)))
}

// hiccups is a listener out of descriptors for its first accepts.
type hiccups struct {
	net.Listener
	left atomic.Int64
}

func (l *hiccups) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestServeOutlivesFailingAccepts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	failing := &hiccups{Listener: l}
	failing.left.Store(3)
	startServerOn(t, ServerConfig{}, failing)
	dialTest(t, l.Addr().String(), DialConfig{})
}

func TestServeEndsWithItsListener(t *testing.T) {
	s := NewServer(ServerConfig{Handler: echo})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, s.Serve(l), sundog.Unavailable)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Serve(l), sundog.Closed)
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
