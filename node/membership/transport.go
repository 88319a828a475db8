package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/sundog-kv/sundog"
)

// Limits of inbound streams. A stream lives for Timing.Stream at most, so what a
// hostile peer can hold is its own share, for a moment.
const (
	maxStreams        = 256
	maxStreamsPerHost = 64
	maxPacket         = 64 << 10
)

// netTransport carries gossip over one UDP socket and one TCP listener on the
// same port. Unlike the library's own it bounds inbound streams, copies each
// packet to its size, and on Shutdown closes all streams, so that nothing waits
// for a silent peer.
type netTransport struct {
	udp       *net.UDPConn
	tcp       net.Listener
	advertise netip.AddrPort
	counters  *counters
	logger    *slog.Logger

	packets chan *memberlist.Packet
	inbound chan net.Conn
	done    context.Context // ends with Shutdown
	stop    context.CancelFunc
	loops   sync.WaitGroup

	mu      sync.Mutex // guards streams and perHost
	streams map[*stream]struct{}
	perHost map[string]int // inbound only
}

var _ memberlist.NodeAwareTransport = (*netTransport)(nil)

// stream is a TCP connection that Shutdown can find.
type stream struct {
	net.Conn
	t    *netTransport
	host string // inbound: whose share it uses
}

// Close closes the connection and gives its place back.
func (s *stream) Close() error {
	s.t.mu.Lock()
	if _, open := s.t.streams[s]; open {
		delete(s.t.streams, s)
		if s.host != "" {
			if s.t.perHost[s.host]--; s.t.perHost[s.host] == 0 {
				delete(s.t.perHost, s.host)
			}
		}
	}
	s.t.mu.Unlock()
	return s.Conn.Close()
}

// listenNet binds both sockets and finds out what to advertise.
func listenNet(ctx context.Context, addr, advertiseHost string, c *counters, logger *slog.Logger) (*netTransport, error) {
	tcp, udp, err := bindBoth(ctx, addr)
	if err != nil {
		return nil, err
	}
	bound := tcp.Addr().(*net.TCPAddr).AddrPort()
	ip, err := advertisedIP(ctx, advertiseHost, bound.Addr().Unmap())
	if err != nil {
		tcp.Close()
		udp.Close()
		return nil, err
	}
	done, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &netTransport{
		udp: udp, tcp: tcp, advertise: netip.AddrPortFrom(ip, bound.Port()), counters: c, logger: logger,
		packets: make(chan *memberlist.Packet), inbound: make(chan net.Conn), done: done, stop: stop,
		streams: map[*stream]struct{}{}, perHost: map[string]int{},
	}
	t.loops.Go(t.readPackets)
	t.loops.Go(t.acceptStreams)
	return t, nil
}

// bindBoth binds TCP and UDP to one port. With port 0 the kernel picks one for
// TCP, which another process may hold for UDP: then it is asked again.
func bindBoth(ctx context.Context, addr string) (net.Listener, *net.UDPConn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, sundog.Errorf(sundog.Invalid, "gossip address %q: want host:port", addr)
	}
	const attempts = 16
	var lc net.ListenConfig
	for attempt := 1; ; attempt++ {
		tcp, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, nil, bindError(addr, err)
		}
		same := net.JoinHostPort(host, strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port))
		udp, err := lc.ListenPacket(ctx, "udp", same)
		if err == nil {
			return tcp, udp.(*net.UDPConn), nil
		}
		tcp.Close()
		if port != "0" || attempt == attempts {
			return nil, nil, bindError(same, err)
		}
	}
}

func bindError(addr string, err error) error {
	kind := sundog.Unavailable
	if errors.Is(err, syscall.EADDRINUSE) {
		kind = sundog.Conflict
	}
	return sundog.Errorf(kind, "gossip address %s: %w", addr, err)
}

// advertisedIP is the address the others are told: the given host, else the
// bound address, else (bound to all) the first private address of the machine,
// else its first address, else loopback.
func advertisedIP(ctx context.Context, host string, bound netip.Addr) (netip.Addr, error) {
	if host != "" {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil || len(ips) == 0 {
			return netip.Addr{}, sundog.Errorf(sundog.Unavailable, "advertised host %q: %w", host, err)
		}
		for _, ip := range ips {
			if ip.Unmap().Is4() {
				return ip.Unmap(), nil
			}
		}
		return ips[0], nil
	}
	if !bound.IsUnspecified() {
		return bound, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, sundog.Errorf(sundog.Unavailable, "addresses of this machine: %w", err)
	}
	best := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		if ip := prefix.Addr(); ip.IsPrivate() && ip.Is4() {
			return ip, nil
		} else if best.IsLoopback() {
			best = ip
		}
	}
	return best, nil
}

// FinalAdvertiseAddr returns what was found when binding.
func (t *netTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// WriteTo sends a packet, best effort.
func (t *netTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.udp.WriteToUDPAddrPort(b, to)
	return time.Now(), err
}

// WriteToAddress is WriteTo; the name is not needed.
func (t *netTransport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh delivers packets.
func (t *netTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh delivers inbound streams.
func (t *netTransport) StreamCh() <-chan net.Conn { return t.inbound }

// DialTimeout opens a stream.
func (t *netTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(t.done, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.track(conn, "")
}

// DialAddressTimeout is DialTimeout; the name is not needed.
func (t *netTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// track registers a stream, or closes it when it is over a limit or too late.
func (t *netTransport) track(conn net.Conn, host string) (*stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done.Err() != nil {
		conn.Close()
		return nil, net.ErrClosed
	}
	if host != "" && (len(t.streams) >= maxStreams || t.perHost[host] >= maxStreamsPerHost) {
		t.counters.refused.Add(1)
		conn.Close()
		return nil, sundog.Errorf(sundog.Unavailable, "too many gossip streams")
	}
	s := &stream{Conn: conn, t: t, host: host}
	t.streams[s] = struct{}{}
	if host != "" {
		t.perHost[host]++
	}
	return s, nil
}

// Shutdown closes the sockets and all streams and joins the loops.
func (t *netTransport) Shutdown() error {
	t.mu.Lock()
	t.stop()
	open := make([]*stream, 0, len(t.streams))
	for s := range t.streams {
		open = append(open, s)
	}
	t.mu.Unlock()
	err := errors.Join(ignoreClosed(t.tcp.Close()), ignoreClosed(t.udp.Close()))
	for _, s := range open {
		s.Close()
	}
	t.loops.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// pauseAfterError keeps a failing socket (no descriptors left) from spinning.
const pauseAfterError = 50 * time.Millisecond

func (t *netTransport) readPackets() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if t.done.Err() != nil {
			return
		}
		if err != nil || n == 0 {
			if err != nil {
				t.logger.Warn("gossip: read packet", "error", err)
				sleep(t.done, pauseAfterError)
			}
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case t.packets <- p:
		case <-t.done.Done():
			return
		}
	}
}

func (t *netTransport) acceptStreams() {
	for {
		conn, err := t.tcp.Accept()
		if t.done.Err() != nil {
			if conn != nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			t.logger.Warn("gossip: accept stream", "error", err)
			sleep(t.done, pauseAfterError)
			continue
		}
		s, err := t.track(conn, remoteHost(conn))
		if err != nil {
			continue
		}
		select {
		case t.inbound <- s:
		case <-t.done.Done():
			s.Close()
			return
		}
	}
}

func remoteHost(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil || host == "" {
		return "unknown"
	}
	return host
}
