package membership

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/membership/memnet"
)

const (
	clusterA = "0123456789abcdef0123456789abcdef"
	clusterB = "fedcba9876543210fedcba9876543210"
)

func meta(id int, boot uint64) Meta {
	return Meta{Node: sundog.NodeID(id), Boot: boot, Protocol: 1, Expect: 3, Listen: fmt.Sprintf(":%d", 7000+id), HTTP: ":80"}
}

// loopback opens a member on a loopback port the kernel chooses.
func loopback(t *testing.T, cfg Config) *Membership {
	t.Helper()
	cfg.BindAddr = "127.0.0.1:0"
	if cfg.Timing == (Timing{}) {
		cfg.Timing = Paced(100 * time.Millisecond)
	}
	m, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// ids are the node ids of the view.
func ids(m *Membership) []int {
	var out []int
	for _, member := range m.Members() {
		out = append(out, int(member.Node))
	}
	return out
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 5*time.Millisecond, what)
}

// sim is a gossip network in a synctest bubble.
type sim struct {
	t   *testing.T
	net *memnet.Network
}

func simAddr(id int) string { return fmt.Sprintf("10.0.%d.%d:7401", id/250, id%250+1) }

// start opens node id at its own address with these seeds.
func (s *sim) start(id int, boot uint64, seeds ...int) *Membership {
	return s.startAt(id, boot, simAddr(id), seeds...)
}

func (s *sim) startAt(id int, boot uint64, addr string, seeds ...int) *Membership {
	s.t.Helper()
	tr, err := s.net.Listen(addr)
	require.NoError(s.t, err)
	cfg := Config{Self: meta(id, boot), Transport: tr}
	for _, seed := range seeds {
		cfg.Seeds = append(cfg.Seeds, simAddr(seed))
	}
	m, err := Open(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { m.Kill() })
	return m
}

// within advances virtual time until ok holds, and fails after the limit.
func (s *sim) within(limit time.Duration, what string, ok func() bool) time.Duration {
	s.t.Helper()
	const step = 50 * time.Millisecond
	for spent := time.Duration(0); spent <= limit; spent += step {
		if ok() {
			return spent
		}
		time.Sleep(step)
	}
	require.Fail(s.t, "not within "+limit.String(), what)
	return 0
}

func bubble(t *testing.T, f func(*testing.T, *sim)) {
	synctest.Test(t, func(t *testing.T) { f(t, &sim{t: t, net: memnet.New()}) })
}

func closeAll(members []*Membership) {
	done := make(chan struct{})
	for _, m := range members {
		go func() { m.Close(); done <- struct{}{} }()
	}
	for range members {
		<-done
	}
}

func mustPort(t *testing.T, addr string) string {
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

// exchangeSize is the number of bytes a member sends in one full exchange.
func (s *sim) exchangeSize(m *Membership) int {
	s.t.Helper()
	tr, err := s.net.Listen("10.9.9.9:7401")
	require.NoError(s.t, err)
	defer tr.Shutdown()
	conn, err := tr.DialTimeout(m.Addr(), time.Minute)
	require.NoError(s.t, err)
	defer conn.Close()
	// The label, then an exchange of no nodes: message type 6, a msgpack map of
	// Nodes, UserStateLen and Join.
	request := append([]byte{244, byte(len(defaultLabel))}, defaultLabel...)
	request = append(request, 6, 0x83)
	request = append(request, "\xa5Nodes\x00"+"\xacUserStateLen\x00"+"\xa4Join\xc2"...)
	_, err = conn.Write(request)
	require.NoError(s.t, err)
	total := 0
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		total += n
		if err != nil {
			return total
		}
	}
}
