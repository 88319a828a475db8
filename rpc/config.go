package rpc

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/sundog-kv/sundog"
)

// Request is one call as a handler sees it. Epoch is the caller's map epoch;
// Deadline is when the caller stops waiting (zero: it does not say). Body
// belongs to the handler.
type Request struct {
	Method   Method
	Epoch    sundog.Epoch
	Deadline time.Time
	Body     []byte
	Peer     Peer
}

// Handler serves requests, many at a time. ctx carries the deadline and ends
// when the connection does. The body returned passes to rpc for good; an error
// is sent with its kind and fields ([sundog.AsError]). A panic is answered
// Internal, counted and logged, and harms nobody else. [MethodPing] never
// reaches a handler, and a node method only with Peer.IsNode.
type Handler interface {
	ServeRPC(ctx context.Context, req *Request) (Body, error)
}

// HandlerFunc makes a function a [Handler].
type HandlerFunc func(ctx context.Context, req *Request) (Body, error)

// ServeRPC calls f.
func (f HandlerFunc) ServeRPC(ctx context.Context, req *Request) (Body, error) { return f(ctx, req) }

// ServerConfig configures a [Server]. Only Handler is required.
type ServerConfig struct {
	Handler Handler
	// Epoch is the map epoch that every answer carries; nil is 0.
	Epoch func() sundog.Epoch
	// Identity is what this node says of itself in each handshake; nil is the
	// zero Identity.
	Identity func() Identity
	// Secret is the cluster secret ([CheckSecret]); empty: node connections are
	// taken from this machine only.
	Secret []byte
	// Admit refuses a peer by an error, which is told to it: another cluster, a
	// boot counter that is behind, a doubled nonce. It runs after the peer has
	// proved what it claims, concurrently for several peers. nil admits all.
	Admit func(Peer) error
	// Upgrade takes over the connection of a node that asked for a protocol of
	// its own; it must not block. After nil the connection is the taker's, to
	// close as well; after an error the server closes it. nil refuses all.
	Upgrade func(protocol string, conn net.Conn, peer Peer) error
	Limits  Limits
	Logger  *slog.Logger // nil discards
	Metrics *Metrics     // nil counts nowhere
}

// DialConfig configures the dialling side.
type DialConfig struct {
	// Identity makes the dialler a node; nil is a client. It then wants the other
	// side to prove itself too.
	Identity *Identity
	// Identify, when set, is asked at each dial and replaces Identity.
	Identify func() Identity
	// Cluster is the cluster id wanted ("" any); a node in another is refused,
	// one that is in none yet is not.
	Cluster string
	// Secret is the cluster secret; used by nodes only.
	Secret []byte
	// Expect is the node wanted at the address, 0 any.
	Expect sundog.NodeID
	// Admit refuses the node that answered, after it proved what it claims. nil
	// admits all.
	Admit func(Peer) error
	// Dial opens the stream; nil is TCP.
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
	Limits  Limits
	Logger  *slog.Logger // nil discards
	Metrics *Metrics     // nil counts nowhere
}

// Reply is the answer to a call. Epoch is the answering node's map epoch, set on
// answered errors too. Body belongs to the caller.
type Reply struct {
	Epoch sundog.Epoch
	Body  []byte
}
