package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// elsewhere is a connection that seems to come from another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9} }

// farListener makes all its connections seem to come from another machine.
type farListener struct{ net.Listener }

func (l farListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return elsewhere{nc}, nil
}

func TestWhoMayBeANode(t *testing.T) {
	other := []byte("another secret of enough bytes")
	for _, c := range []struct {
		name           string
		server, dialer []byte
		far            bool
		client         bool
		want           error
		isNode         bool
	}{
		{name: "one secret", server: testSecret, dialer: testSecret, isNode: true},
		{name: "one secret, far away", server: testSecret, dialer: testSecret, far: true, isNode: true},
		{name: "two secrets", server: testSecret, dialer: other, want: sundog.Denied},
		{name: "dialer without", server: testSecret, want: sundog.Denied},
		{name: "server without", dialer: testSecret, want: sundog.Denied},
		{name: "none, this machine", isNode: true},
		{name: "none, far away", far: true, want: sundog.Denied},
		{name: "client, secret", server: testSecret, client: true},
		{name: "client, far away", far: true, client: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			addr := l.Addr().String()
			if c.far {
				l = farListener{l}
			}
			peers := make(chan Peer, 1)
			startServerOn(t, ServerConfig{Secret: c.server, Identity: func() Identity { return *nodeIdentity(2) }, Handler: HandlerFunc(func(_ context.Context, r *Request) (Body, error) {
				peers <- r.Peer
				return nil, nil
			})}, l)
			cfg := DialConfig{Secret: c.dialer, Cluster: testCluster}
			if !c.client {
				cfg.Identity = nodeIdentity(1)
			}
			conn, err := Dial(within(t, patient), addr, cfg)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			defer conn.Close()
			require.Equal(t, *nodeIdentity(2), conn.Peer().Identity)
			require.Equal(t, c.isNode, conn.Peer().IsNode)
			_, err = conn.Call(within(t, patient), MethodGet, 0, nil)
			require.NoError(t, err)
			p := <-peers
			require.Equal(t, c.isNode, p.IsNode)
			if c.isNode {
				require.Equal(t, *cfg.Identity, p.Identity)
			} else {
				require.Equal(t, Identity{Cluster: testCluster}, p.Identity)
			}
		})
	}
}

// TestServerMustProveItself has an impostor that lacks the secret go through
// every answer it could give to a node.
func TestServerMustProveItself(t *testing.T) {
	impostor := func(t *testing.T, reply func(nc net.Conn, hello []byte)) error {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			got, _, err := readHello(far)
			if err == nil {
				reply(far, got)
			}
		}()
		_, err := Dial(within(t, patient), "pipe", DialConfig{
			Identity: nodeIdentity(1), Secret: testSecret,
			Dial: func(context.Context, string) (net.Conn, error) { return near, nil },
		})
		return err
	}
	send := func(nc net.Conn, payload []byte) { _, _ = nc.Write(seal(payload)) }
	ask := answer{status: statusProve, version: 1, identity: *nodeIdentity(2)}

	t.Run("needs no proof", func(t *testing.T) {
		require.ErrorIs(t, impostor(t, func(nc net.Conn, _ []byte) {
			a := ask
			a.status = statusOK
			send(nc, a.encode())
		}), sundog.Denied)
	})
	t.Run("a proof of zeros", func(t *testing.T) {
		require.ErrorIs(t, impostor(t, func(nc net.Conn, _ []byte) {
			send(nc, ask.encode())
			_, _, _ = readHello(nc)
			send(nc, (&verdict{status: statusOK, proof: make([]byte, 32)}).encode())
		}), sundog.Denied)
	})
	t.Run("the dialler's proof handed back", func(t *testing.T) {
		require.ErrorIs(t, impostor(t, func(nc net.Conn, _ []byte) {
			send(nc, ask.encode())
			_, payload, _ := readHello(nc)
			mac, _ := decodeProof(payload)
			send(nc, (&verdict{status: statusOK, proof: mac}).encode())
		}), sundog.Denied)
	})
	t.Run("frames at once", func(t *testing.T) {
		require.ErrorIs(t, impostor(t, func(nc net.Conn, _ []byte) {
			_, _ = nc.Write((&header{flags: flagResponse}).append(nil, 0))
		}), sundog.Unavailable)
	})
}

// TestProofsDoNotReplay records a good handshake and plays the dialler's part of
// it to the same server again; and checks that whoever has not proved itself is
// never told anything that depends on the secret.
func TestProofsDoNotReplay(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Secret: testSecret})
	var sent bytes.Buffer
	c := dialTest(t, addr, DialConfig{Identity: nodeIdentity(1), Secret: testSecret, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return &recorder{Conn: nc, sent: &sent}, err
	}})
	require.True(t, c.Peer().IsNode)
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.SetDeadline(time.Now().Add(patient)))
	_, err = nc.Write(sent.Bytes())
	require.NoError(t, err)
	_, payload, err := readHello(nc)
	require.NoError(t, err)
	a, err := decodeAnswer(payload)
	require.NoError(t, err)
	require.EqualValues(t, statusProve, a.status)
	_, payload, err = readHello(nc)
	require.NoError(t, err)
	v, err := decodeVerdict(payload)
	require.NoError(t, err)
	require.ErrorIs(t, v.refusal, sundog.Denied)
	require.Empty(t, v.proof)
	_, err = nc.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

type recorder struct {
	net.Conn
	sent *bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

func TestFences(t *testing.T) {
	behind := sundog.Errorf(sundog.Conflict, "boot counter 6 is behind 7: was this directory restored?")
	t.Run("the server's", func(t *testing.T) {
		for _, secret := range [][]byte{nil, testSecret} {
			var seen atomic.Pointer[Peer]
			_, addr := startServer(t, ServerConfig{Secret: secret, Admit: func(p Peer) error { seen.Store(&p); return behind }})
			_, err := Dial(within(t, patient), addr, DialConfig{Identity: nodeIdentity(1), Secret: secret})
			require.ErrorIs(t, err, sundog.Conflict)
			require.Equal(t, behind.Msg, sundog.AsError(err).Msg)
			require.True(t, seen.Load().IsNode, "asked after the proof")
			require.Equal(t, *nodeIdentity(1), seen.Load().Identity)
		}
	})
	t.Run("the dialer's", func(t *testing.T) {
		_, addr := startServer(t, ServerConfig{})
		_, err := Dial(within(t, patient), addr, DialConfig{Admit: func(Peer) error { return behind }})
		require.ErrorIs(t, err, sundog.Conflict)
	})
	t.Run("another cluster, another node", func(t *testing.T) {
		_, addr := startServer(t, ServerConfig{Identity: func() Identity { return *nodeIdentity(2) }})
		_, err := Dial(within(t, patient), addr, DialConfig{Cluster: "ffffffffffffffffffffffffffffffff"})
		require.ErrorIs(t, err, sundog.Denied)
		_, err = Dial(within(t, patient), addr, DialConfig{Expect: 3})
		require.ErrorIs(t, err, sundog.Unavailable)
		c := dialTest(t, addr, DialConfig{Cluster: testCluster, Expect: 2})
		require.False(t, c.Peer().IsNode)
	})
}

func TestVersionsAreNegotiated(t *testing.T) {
	_, addr := startServer(t, ServerConfig{})
	for _, c := range []struct {
		lowest, highest uint8
		status          uint8
	}{{1, 9, statusOK}, {2, 9, statusRefused}, {9, 2, statusRefused}} {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer nc.Close()
		require.NoError(t, nc.SetDeadline(time.Now().Add(patient)))
		h := hello{minVersion: c.lowest, maxVersion: c.highest, role: roleClient, features: 1 << 63}
		_, err = nc.Write(seal(append(h.encode(), "of a newer release"...)))
		require.NoError(t, err)
		_, payload, err := readHello(nc)
		require.NoError(t, err)
		a, err := decodeAnswer(payload)
		require.NoError(t, err)
		require.Equal(t, c.status, a.status)
		require.Zero(t, a.features, "features are what both have")
	}
}

func TestUpgrade(t *testing.T) {
	type taken struct {
		protocol string
		conn     net.Conn
		peer     Peer
	}
	got := make(chan taken, 1)
	_, addr := startServer(t, ServerConfig{Secret: testSecret, Upgrade: func(protocol string, conn net.Conn, peer Peer) error {
		if protocol != "raft/bulk" {
			return errors.New("unknown")
		}
		got <- taken{protocol, conn, peer}
		return nil
	}})
	node := DialConfig{Identity: nodeIdentity(1), Secret: testSecret}
	conn, peer, err := DialUpgrade(within(t, patient), addr, "raft/bulk", node)
	require.NoError(t, err)
	defer conn.Close()
	require.True(t, peer.IsNode)
	g := <-got
	defer g.conn.Close()
	require.Equal(t, sundog.NodeID(1), g.peer.Node)
	require.True(t, g.peer.IsNode)
	require.IsType(t, &net.TCPConn{}, g.conn, "the stream itself, not a wrapper")
	_, err = conn.Write([]byte("from the dialler"))
	require.NoError(t, err)
	_, err = g.conn.Write([]byte("from the server"))
	require.NoError(t, err)
	for c, want := range map[net.Conn]string{g.conn: "from the dialler", conn: "from the server"} {
		b := make([]byte, len(want))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patient)))
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}

	refused, _, err := DialUpgrade(within(t, patient), addr, "smtp", node)
	require.NoError(t, err)
	defer refused.Close()
	require.NoError(t, refused.SetReadDeadline(time.Now().Add(patient)))
	_, err = refused.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	_, _, err = DialUpgrade(within(t, patient), addr, "raft/bulk", DialConfig{})
	require.ErrorIs(t, err, sundog.Denied, "a client")
	_, _, err = DialUpgrade(within(t, patient), addr, "", node)
	require.ErrorIs(t, err, sundog.Invalid)
}

// TestUpgradeLosesNoByte has the dialler's first bytes follow its hello in one
// segment: they must reach the taker.
func TestUpgradeLosesNoByte(t *testing.T) {
	got := make(chan net.Conn, 1)
	_, addr := startServer(t, ServerConfig{Upgrade: func(_ string, conn net.Conn, _ Peer) error { got <- conn; return nil }})
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	h := hello{minVersion: 1, maxVersion: 1, role: roleNode, identity: *nodeIdentity(1), protocol: "raft/bulk"}
	_, err = nc.Write(append(seal(h.encode()), "right behind"...))
	require.NoError(t, err)
	conn := <-got
	defer conn.Close()
	b := make([]byte, len("right behind"))
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patient)))
	_, err = io.ReadFull(conn, b)
	require.NoError(t, err)
	require.Equal(t, "right behind", string(b))
}

// TestDialOfTheWrongThing is CASES 27, but for the later call, which the pool's
// tests make.
func TestDialOfTheWrongThing(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it says what we did to it
	secure.StartTLS()
	defer secure.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	blackhole := func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		addr string
		dial func(context.Context, string) (net.Conn, error)
	}{
		"http":         {addr: web.Listener.Addr().String()},
		"tls":          {addr: secure.Listener.Addr().String()},
		"silent":       {addr: silent.Addr().String()},
		"refused":      {addr: closed.Addr().String()},
		"unknown host": {addr: "no-such-host.invalid:7400"},
		"no port":      {addr: "127.0.0.1"},
		"blackhole":    {addr: "192.0.2.1:7400", dial: blackhole},
	} {
		start := time.Now()
		_, err := Dial(within(t, 500*time.Millisecond), c.addr, DialConfig{Dial: c.dial})
		require.ErrorIs(t, err, sundog.Unavailable, name)
		require.Less(t, time.Since(start), 5*time.Second, name)
	}
}

func TestServerToldToSpeakSomethingElse(t *testing.T) {
	metrics := &Metrics{}
	_, addr := startServer(t, ServerConfig{Metrics: metrics})
	_, err := (&http.Client{Timeout: patient}).Get("http://" + addr)
	require.Error(t, err)
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patient}, Config: &tls.Config{InsecureSkipVerify: true}}
	_, err = dialer.DialContext(within(t, patient), "tcp", addr)
	require.Error(t, err)
	require.Eventually(t, func() bool { return metrics.refused[refusedMagic].Load() == 2 }, patient, time.Millisecond)
}
