package membership

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sundog-kv/sundog"
)

func TestLoopback(t *testing.T) {
	defer goleak.VerifyNone(t)
	key := bytes.Repeat([]byte{7}, 32)
	a := loopback(t, Config{Self: meta(1, 1), Key: key})
	b := loopback(t, Config{Self: meta(2, 1), Key: key, Seeds: []string{a.Addr()}})
	c := loopback(t, Config{Self: meta(3, 1), Key: key, Peers: func() []string { return []string{b.Addr()} }})
	all := []*Membership{a, b, c}
	eventually(t, 20*time.Second, "full view", func() bool {
		return !slices.ContainsFunc(all, func(m *Membership) bool { return len(m.Members()) != 3 })
	})
	require.Equal(t, "127.0.0.1:7002", a.Members()[1].Listen)
	require.Equal(t, b.Addr(), a.Members()[1].Gossip)

	// One leaves and is gone at once; one dies and is missed; it comes back on
	// another port.
	require.NoError(t, c.Close())
	eventually(t, 20*time.Second, "left", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	require.NoError(t, b.Kill())
	again := loopback(t, Config{Self: meta(2, 2), Key: key, Seeds: []string{a.Addr()}})
	eventually(t, 20*time.Second, "restarted elsewhere", func() bool {
		view := a.Members()
		return len(view) == 2 && view[1].Boot == 2 && view[1].Gossip == again.Addr() && len(again.Members()) == 2
	})
	require.NoError(t, again.Kill())
	eventually(t, 30*time.Second, "died", func() bool { return len(a.Members()) == 1 })
	require.NotZero(t, a.Stats().Suspected, "suspicions are read from the library's log: has its wording changed?")
	require.NotZero(t, a.Stats().Failed)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
}

// All nodes stop and start at once, on the ports they had: the sockets are free
// again when Close returns.
func TestSamePortAgain(t *testing.T) {
	defer goleak.VerifyNone(t)
	first := loopback(t, Config{Self: meta(1, 1)})
	addr := first.Addr()
	_, err := Open(t.Context(), Config{Self: meta(2, 1), BindAddr: addr})
	require.ErrorIs(t, err, sundog.Conflict)
	require.ErrorContains(t, err, addr)
	require.NoError(t, first.Close())
	second, err := Open(t.Context(), Config{Self: meta(1, 2), BindAddr: addr})
	require.NoError(t, err)
	require.Equal(t, addr, second.Addr())
	require.NoError(t, second.Close())
}

// Another key or label is another world: nothing merges, both say why, neither
// is harmed.
func TestOtherKeyOrLabel(t *testing.T) {
	defer goleak.VerifyNone(t)
	key := bytes.Repeat([]byte{7}, 16)
	a := loopback(t, Config{Self: meta(1, 1), Key: key, ClusterLabel: "one"})
	for i, cfg := range []Config{
		{Key: bytes.Repeat([]byte{8}, 16), ClusterLabel: "one"},
		{Key: nil, ClusterLabel: "one"},
		{Key: key, ClusterLabel: "two"},
	} {
		cfg.Self, cfg.Seeds = meta(10+i, 1), []string{a.Addr()}
		m := loopback(t, cfg)
		eventually(t, 20*time.Second, "the refusal is told", func() bool { return strings.Contains(m.Stats().LastError, a.Addr()) })
		require.Len(t, m.Members(), 1)
		require.NoError(t, m.Close())
	}
	b := loopback(t, Config{Self: meta(2, 1), Key: key, ClusterLabel: "one", Seeds: []string{a.Addr()}})
	eventually(t, 20*time.Second, "a friend", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
}

// Garbage in packets and streams, silent and half-open streams by the hundred:
// the members keep each other, the log stays small, Close does not wait for
// anybody.
func TestGarbageOnThePort(t *testing.T) {
	defer goleak.VerifyNone(t)
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := loopback(t, Config{Self: meta(1, 1), Logger: logger})
	b := loopback(t, Config{Self: meta(2, 1), Seeds: []string{a.Addr()}})
	both := func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 }
	eventually(t, 20*time.Second, "full view", both)

	var silent []net.Conn
	for range 2 * maxStreamsPerHost {
		conn, err := net.Dial("tcp", a.Addr())
		require.NoError(t, err)
		defer conn.Close()
		silent = append(silent, conn)
	}
	udp, err := net.Dial("udp", a.Addr())
	require.NoError(t, err)
	defer udp.Close()
	label := append([]byte{244, byte(len(defaultLabel))}, defaultLabel...)
	junk := make([]byte, 1400)
	for i := range 2000 {
		rand.Read(junk)
		packet := junk[:1+i%1399]
		if i%2 == 0 { // past the label check
			packet = append(slices.Clone(label), packet...)
			packet[len(label)] = byte(i % 16) // every message type
		}
		udp.Write(packet)
	}
	for i := range 100 {
		conn, err := net.Dial("tcp", a.Addr())
		require.NoError(t, err)
		conn.Write(append(slices.Clone(label), byte(i%16)))
		conn.Write(junk)
		conn.Close()
	}
	eventually(t, 20*time.Second, "the surplus is closed unread", func() bool { return a.Stats().Refused >= maxStreamsPerHost })
	require.NoError(t, silent[len(silent)-1].SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = silent[len(silent)-1].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	eventually(t, 20*time.Second, "still a view", both)
	c := loopback(t, Config{Self: meta(3, 1), Seeds: []string{b.Addr()}})
	eventually(t, 20*time.Second, "a newcomer", func() bool { return len(a.Members()) == 3 && len(c.Members()) == 3 })
	require.Less(t, log.Len(), 100<<10)
	for _, m := range []*Membership{a, b, c} {
		require.NoError(t, m.Close())
	}
}

// Port 0 must be one port for both protocols, also when the kernel's choice for
// one is taken for the other.
func TestOnePortForBoth(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := loopback(t, Config{Self: meta(1, 1)})
	port := mustPort(t, m.Addr())
	_, err := net.ListenPacket("udp", "127.0.0.1:"+port)
	require.Error(t, err)
	_, err = net.Listen("tcp", "127.0.0.1:"+port)
	require.Error(t, err)
	require.NoError(t, m.Close())

	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	_, err = Open(t.Context(), Config{Self: meta(1, 1), BindAddr: udp.LocalAddr().String()})
	require.ErrorIs(t, err, sundog.Conflict)
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	require.NoError(t, err, "the half that could be bound was not given back")
	tcp.Close()
}

func TestAdvertise(t *testing.T) {
	defer goleak.VerifyNone(t)
	m, err := Open(t.Context(), Config{Self: meta(1, 1), BindAddr: ":0", AdvertiseHost: "127.0.0.1"})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(m.Addr(), "127.0.0.1:"), m.Addr())
	require.NoError(t, m.Close())
	m, err = Open(t.Context(), Config{Self: meta(1, 1), BindAddr: ":0"})
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(m.Addr())
	require.NoError(t, err)
	require.False(t, net.ParseIP(host).IsUnspecified(), m.Addr())
	require.NoError(t, m.Close())
	_, err = Open(t.Context(), Config{Self: meta(1, 1), BindAddr: ":0", AdvertiseHost: "no-such-host.invalid"})
	require.ErrorIs(t, err, sundog.Unavailable)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}
