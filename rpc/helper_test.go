package rpc

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is the deadline of calls that are expected to be answered at once.
const patient = 30 * time.Second

const testCluster = "0123456789abcdef0123456789abcdef"

var testSecret = []byte("a secret of enough bytes, at last")

// echo answers with the request's body.
var echo = HandlerFunc(func(_ context.Context, r *Request) (Body, error) { return Body{r.Body}, nil })

// startServer serves cfg on a loopback port until the test ends.
func startServer(t testing.TB, cfg ServerConfig) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return startServerOn(t, cfg, l), l.Addr().String()
}

func startServerOn(t testing.TB, cfg ServerConfig, l net.Listener) *Server {
	t.Helper()
	if cfg.Handler == nil {
		cfg.Handler = echo
	}
	s := NewServer(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	return s
}

func dialTest(t testing.TB, addr string, cfg DialConfig) *Conn {
	t.Helper()
	c, err := Dial(within(t, patient), addr, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// within is a context that ends after d or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func nodeIdentity(id sundog.NodeID) *Identity {
	return &Identity{Node: id, Boot: 7, Nonce: 99, Cluster: testCluster}
}
