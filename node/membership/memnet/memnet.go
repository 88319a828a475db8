// Package memnet is a gossip network in memory: transports for memberlist that
// need no sockets, never block on a stopped peer, and so run under
// testing/synctest, where the library's own mock network deadlocks. Links can
// be cut and nodes frozen.
//
// What it is not for: production, or measuring anything but virtual time. A
// stream is a net.Pipe without buffers.
//
// The package starts no goroutines.
package memnet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/sundog-kv/sundog"
)

// Network joins transports by their address.
type Network struct {
	mu     sync.Mutex // guards all below, and the streams of every transport
	nodes  map[string]*Transport
	cuts   map[[2]string]bool // ordered pair of addresses
	frozen map[string]bool
}

// New returns a network without nodes.
func New() *Network {
	return &Network{nodes: map[string]*Transport{}, cuts: map[[2]string]bool{}, frozen: map[string]bool{}}
}

// Transport is one node's end: a memberlist.NodeAwareTransport.
type Transport struct {
	network *Network
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	inbound chan net.Conn
	done    chan struct{}
	streams map[*stream]struct{} // guarded by network.mu
	closed  bool                 // guarded by network.mu
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// stream is one end of a connection between two nodes.
type stream struct {
	net.Conn
	from, to *Transport
}

// Queue lengths: what does not fit is lost, as packets are.
const (
	packetQueue = 1024
	streamQueue = 256
)

// Listen adds a node at ip:port; Conflict when the address is taken.
func (n *Network) Listen(addr string) (*Transport, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "address %q: want ip:port", addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[addr] != nil {
		return nil, sundog.Errorf(sundog.Conflict, "address %s is in use", addr)
	}
	t := &Transport{network: n, addr: at, packets: make(chan *memberlist.Packet, packetQueue),
		inbound: make(chan net.Conn, streamQueue), done: make(chan struct{}), streams: map[*stream]struct{}{}}
	n.nodes[addr] = t
	delete(n.frozen, addr)
	return t, nil
}

// Cut ends all traffic between two addresses, in both directions, silently:
// packets vanish, new streams time out, open ones break.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[pair(a, b)] = true
	n.breakStreams(func(s *stream) bool { return pair(s.from.addr.String(), s.to.addr.String()) == pair(a, b) })
}

// Heal undoes Cut.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cuts, pair(a, b))
}

// Freeze makes a node look stopped: it accepts streams and never answers, and
// nothing of it gets out.
func (n *Network) Freeze(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen[addr] = true
}

// Thaw undoes Freeze.
func (n *Network) Thaw(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.frozen, addr)
}

func pair(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// breakStreams closes streams; the caller holds mu.
func (n *Network) breakStreams(which func(*stream) bool) {
	for _, t := range n.nodes {
		for s := range t.streams {
			if which(s) {
				delete(t.streams, s)
				s.Conn.Close()
			}
		}
	}
}

// FinalAdvertiseAddr returns the node's address.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// WriteTo delivers a packet or loses it; it never waits and never fails.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	n := t.network
	n.mu.Lock()
	to, self := n.nodes[addr], t.addr.String()
	lost := to == nil || t.closed || n.cuts[pair(self, addr)] || n.frozen[self] || n.frozen[addr]
	n.mu.Unlock()
	if lost {
		return now, nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.addr), Timestamp: now}
	select {
	case to.packets <- p:
	default:
	}
	return now, nil
}

// WriteToAddress is WriteTo; the name is not needed.
func (t *Transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh delivers packets.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh delivers inbound streams.
func (t *Transport) StreamCh() <-chan net.Conn { return t.inbound }

// DialTimeout opens a stream whose deadline is the timeout until another is
// set. Nobody there is an error at once, a cut link one after the timeout.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, blackhole, err := t.dial(addr)
	if blackhole {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.done:
		}
		return nil, dialError(os.ErrDeadlineExceeded)
	}
	if err != nil {
		return nil, dialError(err)
	}
	return conn, conn.SetDeadline(time.Now().Add(timeout))
}

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

var errRefused = errors.New("connection refused")

func (t *Transport) dial(addr string) (conn net.Conn, blackhole bool, err error) {
	n := t.network
	n.mu.Lock()
	defer n.mu.Unlock()
	to, self := n.nodes[addr], t.addr.String()
	switch {
	case t.closed:
		return nil, false, net.ErrClosed
	case n.cuts[pair(self, addr)] || n.frozen[self]:
		return nil, true, nil
	case to == nil:
		return nil, false, errRefused
	}
	near, far := net.Pipe()
	a, b := &stream{Conn: near, from: t, to: to}, &stream{Conn: far, from: to, to: t}
	if !n.frozen[addr] {
		select {
		case to.inbound <- b:
		default:
			near.Close()
			return nil, false, errRefused
		}
	}
	t.streams[a], to.streams[b] = struct{}{}, struct{}{}
	return a, false, nil
}

// Close closes this end.
func (s *stream) Close() error {
	n := s.from.network
	n.mu.Lock()
	delete(s.from.streams, s)
	n.mu.Unlock()
	return s.Conn.Close()
}

// DialAddressTimeout is DialTimeout; the name is not needed.
func (t *Transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown takes the node off the network and breaks its streams.
func (t *Transport) Shutdown() error {
	n := t.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	close(t.done)
	delete(n.nodes, t.addr.String())
	for s := range t.streams {
		delete(t.streams, s)
		s.Conn.Close()
	}
	return nil
}
