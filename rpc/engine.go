package rpc

import (
	"context"
	"net"

	"github.com/sundog-kv/sundog"
)

// Metrics counts what connections do.
type Metrics struct{}

// CheckSecret says why a secret is too weak (kind Invalid).
func CheckSecret(secret []byte) error { return nil }

// Server serves requests on listeners.
type Server struct{ cfg ServerConfig }

// NewServer makes a server; Serve starts it on a listener.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// Serve accepts connections of l until Close (then nil) or until l fails.
func (s *Server) Serve(l net.Listener) error { return sundog.Errorf(sundog.Unavailable, "serve") }

// Close ends all connections and joins all goroutines.
func (s *Server) Close() error { return nil }

// Conn is a connection to one node; safe for concurrent use.
type Conn struct{ done chan struct{} }

// Dial connects and shakes hands.
func Dial(ctx context.Context, addr string, cfg DialConfig) (*Conn, error) {
	return nil, sundog.Errorf(sundog.Unavailable, "dial")
}

// DialUpgrade connects, shakes hands for a protocol of its own and hands the
// connection over.
func DialUpgrade(ctx context.Context, addr, protocol string, cfg DialConfig) (net.Conn, Peer, error) {
	return nil, Peer{}, sundog.Errorf(sundog.Unavailable, "dial")
}

// Call sends a request and waits for the answer.
func (c *Conn) Call(ctx context.Context, m Method, epoch sundog.Epoch, body Body) (Reply, error) {
	return Reply{}, sundog.Errorf(sundog.Unavailable, "call")
}

// Peer is the node at the other end.
func (c *Conn) Peer() Peer { return Peer{} }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil while it lives.
func (c *Conn) Err() error { return nil }

// Close ends the connection.
func (c *Conn) Close() error { return nil }

// Pool keeps one connection per address.
type Pool struct{ cfg DialConfig }

// NewPool makes a pool.
func NewPool(cfg DialConfig) *Pool { return &Pool{cfg: cfg} }

// Get returns the connection to addr, dialling if there is none.
func (p *Pool) Get(ctx context.Context, addr string) (*Conn, error) {
	return Dial(ctx, addr, p.cfg)
}

// Close ends all connections.
func (p *Pool) Close() error { return nil }
