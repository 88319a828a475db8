package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// Server serves a [Handler] on any number of listeners.
type Server struct {
	cfg    ServerConfig
	limits Limits
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	joined sync.WaitGroup // connections and Serve calls

	mu        sync.Mutex // guards the fields below
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[net.Conn]struct{}
	extra     int // of conns, those over the limit that are being told so
}

// NewServer makes a server; [Server.Serve] starts it on a listener.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{
		cfg: cfg, limits: cfg.Limits.WithDefaults(), log: cfg.Logger,
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[net.Conn]struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(lifetime{})
	return s
}

// Serve accepts connections of l, which it closes at its end, until Close (it
// then returns nil) or until l fails for good. After Close it is of kind
// [sundog.Closed].
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = l.Close() // it was ours to close
		return sundog.Errorf(sundog.Closed, "the server is closed")
	}
	s.listeners[l] = struct{}{}
	s.joined.Add(1)
	s.mu.Unlock()
	defer s.joined.Done()
	defer func() {
		_ = l.Close() // closed already when Close ended us
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	return s.accept(l)
}

// accept is Serve's loop. An error of accept that may pass (no descriptors left)
// is waited out with growing pauses.
func (s *Server) accept(l net.Listener) error {
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if s.over() {
			if err == nil {
				_ = nc.Close() // it came too late
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return sundog.Errorf(sundog.Unavailable, "the listener was closed: %w", err)
		}
		if err != nil {
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed", "error", err, "again in", pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
			continue
		}
		pause = 0
		s.start(nc)
	}
}

// start begins the service of a connection, or of its refusal.
func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		_ = nc.Close() // Close has no part in it any more
		return
	case len(s.conns) >= s.limits.MaxConns+maxTold:
		s.cfg.Metrics.refuse(refusedFull)
		_ = nc.Close() // even those who tell the others are busy
		return
	}
	full := len(s.conns)-s.extra >= s.limits.MaxConns
	if full {
		s.extra++
	}
	s.conns[nc] = struct{}{}
	s.joined.Add(1)
	if full {
		go s.turnAway(nc)
		return
	}
	s.cfg.Metrics.accept()
	go s.serve(nc)
}

// maxTold is how many connections over the limit are told so at a time, and
// tellTime how long each may take.
const (
	maxTold  = 64
	tellTime = time.Second
)

// turnAway tells one connection over the limit that it is.
func (s *Server) turnAway(nc net.Conn) {
	defer s.joined.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, nc)
		s.extra--
		s.mu.Unlock()
		_ = nc.Close() // told or not
	}()
	s.cfg.Metrics.refuse(refusedFull)
	if err := nc.SetDeadline(time.Now().Add(tellTime)); err != nil {
		return
	}
	if _, _, err := readHello(nc); err != nil {
		return
	}
	a := answer{status: statusRefused, version: newestVersion, identity: s.identity()}
	a.refusal = sundog.Errorf(sundog.Unavailable, "this node has its %d connections already", s.limits.MaxConns)
	_, _ = nc.Write(seal(a.encode())) // it is closed either way
}

// serve is the goroutine of one connection: handshake, then frames or upgrade.
func (s *Server) serve(nc net.Conn) {
	defer s.joined.Done()
	s.cfg.Metrics.conn(sideServer, 1)
	defer s.cfg.Metrics.conn(sideServer, -1)
	peer, protocol, reason, err := s.receive(nc)
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	switch {
	case err != nil:
		s.cfg.Metrics.refuse(reason)
		s.log.Debug("connection refused", "peer", nc.RemoteAddr(), "reason", refusalNames[reason], "error", err)
		s.forget(nc, true)
	case protocol == "":
		s.serveFrames(nc, peer)
		s.forget(nc, true)
	default:
		s.upgrade(nc, protocol, peer)
	}
}

// upgrade hands the stream over. Nothing of it was read beyond the handshake.
func (s *Server) upgrade(nc net.Conn, protocol string, peer Peer) {
	if !s.forget(nc, false) {
		_ = nc.Close() // Close came first
		return
	}
	if err := s.cfg.Upgrade(protocol, nc, peer); err != nil {
		s.log.Warn("upgrade failed", "protocol", protocol, "peer", peer.Addr, "error", err)
		_ = nc.Close() // it was not taken
	}
}

// forget stops tracking a connection and closes it if asked; false if Close has
// taken it over.
func (s *Server) forget(nc net.Conn, closeIt bool) bool {
	s.mu.Lock()
	delete(s.conns, nc)
	live := !s.closed
	s.mu.Unlock()
	if closeIt {
		_ = nc.Close() // often closed already
	}
	return live
}

// Close stops accepting, ends every connection and every request's context, and
// returns when all goroutines have ended: handlers must return when their
// context ends. Upgraded connections belong to their takers. Closing again does
// nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		_ = l.Close() // Serve returns either way
	}
	for nc := range s.conns {
		_ = nc.Close() // its goroutine ends either way
	}
	s.mu.Unlock()
	s.cancel() // after the connections: no answer tells a client of our end by chance
	s.joined.Wait()
	return nil
}

func (s *Server) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) epoch() sundog.Epoch {
	if s.cfg.Epoch == nil {
		return 0
	}
	return s.cfg.Epoch()
}

// ended logs why a connection ended.
func (s *Server) ended(peer Peer, err error) {
	if errors.Is(err, errStalled) {
		s.cfg.Metrics.stall()
	}
	s.log.Debug("connection ended", "peer", peer.Addr, "node", peer.IsNode, "error", err)
}
