package rpc

import (
	"net"
	"net/netip"

	"github.com/sundog-kv/sundog"
)

// Identity is what a node says about itself in the handshake. Boot counts the
// starts of its data directory, Nonce is drawn at each start, so that a copied
// or restored directory shows. Cluster is the cluster id, "" before the node is
// in one. A client has none but, perhaps, the cluster it wants.
type Identity struct {
	Node    sundog.NodeID
	Boot    uint64
	Nonce   uint64
	Cluster string
}

// Peer is the other end of a connection. IsNode says that it proved to be a
// node: by the cluster secret, or, where there is none, by coming from this
// machine.
type Peer struct {
	Identity
	IsNode bool
	Addr   net.Addr
}

// isLocal reports whether a connection with that remote address comes from this
// machine: a loopback address, a unix socket, or a pipe within the process.
func isLocal(a net.Addr) bool {
	if a == nil {
		return false
	}
	switch a.Network() {
	case "unix", "pipe":
		return true
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
