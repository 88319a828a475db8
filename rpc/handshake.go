package rpc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/sundog-kv/sundog"
)

// Versions of the protocol that this release speaks.
const (
	oldestVersion = 1
	newestVersion = 1
)

// features are the optional parts of the protocol that this release knows; both
// sides use what both have. None yet.
const features = 0

// DialUpgrade connects to addr and shakes hands for a protocol of its own; the
// stream is then the caller's, right after the handshake and with its deadlines
// cleared. Only nodes may upgrade. Errors as for [Dial]; a node that does not
// know the protocol closes the stream.
func DialUpgrade(ctx context.Context, addr, protocol string, cfg DialConfig) (net.Conn, Peer, error) {
	if protocol == "" || len(protocol) > maxProtocol {
		return nil, Peer{}, sundog.Errorf(sundog.Invalid, "protocol name %q: use 1 to %d characters", protocol, maxProtocol)
	}
	return dial(ctx, addr, protocol, cfg)
}

// dial opens a stream and shakes hands on it.
func dial(ctx context.Context, addr, protocol string, cfg DialConfig) (net.Conn, Peer, error) {
	limits := cfg.Limits.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, limits.Handshake)
	defer cancel()
	open := cfg.Dial
	if open == nil {
		open = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	nc, err := open(ctx, addr)
	if err != nil {
		cfg.Metrics.dial(false)
		return nil, Peer{}, sundog.Errorf(sundog.Unavailable, "connect to %s: %w", addr, err)
	}
	// The context ends the handshake by its deadline or by being cancelled.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	peer, err := greet(nc, protocol, &cfg)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline of the past may come at any moment
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	cfg.Metrics.dial(err == nil)
	if err == nil {
		return nc, peer, nil
	}
	_ = nc.Close()
	if ctx.Err() != nil {
		return nil, Peer{}, sundog.Errorf(sundog.Unavailable, "%s accepts connections but does not shake hands: %w", addr, context.Cause(ctx))
	}
	if e, ok := errors.AsType[*sundog.Error](err); ok && e != errMagic {
		return nil, Peer{}, err
	}
	return nil, Peer{}, sundog.Errorf(sundog.Unavailable, "shake hands with %s: %w", addr, err)
}

// greet is the dialler's side of the handshake.
func greet(nc net.Conn, protocol string, cfg *DialConfig) (Peer, error) {
	h := hello{
		minVersion: oldestVersion, maxVersion: newestVersion, features: features,
		role: roleClient, identity: Identity{Cluster: cfg.Cluster}, expect: cfg.Expect, protocol: protocol,
	}
	if cfg.Identify != nil {
		h.role, h.identity = roleNode, cfg.Identify()
	} else if cfg.Identity != nil {
		h.role, h.identity = roleNode, *cfg.Identity
	}
	if len(h.identity.Cluster) > maxCluster {
		return Peer{}, sundog.Errorf(sundog.Invalid, "cluster id of %d bytes", len(h.identity.Cluster))
	}
	rand.Read(h.nonce[:]) // never fails since Go 1.24
	sent := seal(h.encode())
	if _, err := nc.Write(sent); err != nil {
		return Peer{}, err
	}
	got, payload, err := readHello(nc)
	if err != nil {
		return Peer{}, err
	}
	a, err := decodeAnswer(payload)
	if err != nil {
		return Peer{}, err
	}
	peer := Peer{Identity: a.identity, Addr: nc.RemoteAddr()}
	if err := judge(&a, peer, cfg); err != nil {
		return peer, err
	}
	if h.role == roleNode {
		if peer.IsNode, err = proveMutually(nc, &a, cfg.Secret, sent, got, peer); err != nil {
			return peer, err
		}
	} else if a.status == statusProve {
		return peer, sundog.Errorf(sundog.Corrupt, "asked to prove an identity that was not claimed")
	}
	if cfg.Admit != nil {
		return peer, cfg.Admit(peer)
	}
	return peer, nil
}

// judge looks at a server's answer as far as it needs no proof.
func judge(a *answer, peer Peer, cfg *DialConfig) error {
	switch {
	case a.status == statusRefused:
		return a.refusal
	case a.version < oldestVersion || a.version > newestVersion:
		return sundog.Errorf(sundog.Invalid, "%s chose protocol version %d; this release speaks %d to %d", peer.Addr, a.version, oldestVersion, newestVersion)
	case cfg.Expect != 0 && peer.Node != cfg.Expect:
		return sundog.Errorf(sundog.Unavailable, "node %s answers at %s where %s was expected", peer.Node, peer.Addr, cfg.Expect)
	case cfg.Cluster != "" && peer.Cluster != "" && peer.Cluster != cfg.Cluster:
		return sundog.Errorf(sundog.Denied, "%s belongs to cluster %s, not to %s", peer.Addr, peer.Cluster, cfg.Cluster)
	}
	return nil
}

// proveMutually is the second half of a node's handshake, from the dialler's
// side. The dialler proves itself first: who merely connects to a node learns
// nothing that depends on the secret.
func proveMutually(nc net.Conn, a *answer, secret, hello, answer []byte, peer Peer) (bool, error) {
	switch {
	case a.status == statusOK && len(secret) != 0:
		return false, sundog.Errorf(sundog.Denied, "%s has no cluster secret, this node has one", peer.Addr)
	case a.status == statusOK && !isLocal(peer.Addr):
		return false, sundog.Errorf(sundog.Denied, "%s is on another machine: node connections beyond this one need a cluster secret", peer.Addr)
	case a.status == statusOK:
		return true, nil
	case len(secret) == 0:
		return false, sundog.Errorf(sundog.Denied, "%s has a cluster secret, this node has none", peer.Addr)
	}
	if _, err := nc.Write(seal(encodeProof(prove(secret, labelDialler, hello, answer)))); err != nil {
		return false, err
	}
	_, payload, err := readHello(nc)
	if err != nil {
		return false, err
	}
	v, err := decodeVerdict(payload)
	if err != nil {
		return false, err
	}
	if v.status == statusRefused {
		return false, v.refusal
	}
	if !hmac.Equal(v.proof, prove(secret, labelServer, hello, answer)) {
		return false, sundog.Errorf(sundog.Denied, "%s does not have this cluster's secret", peer.Addr)
	}
	return true, nil
}

// receive is the server's side of the handshake. It returns the peer and the
// protocol it wants; after an error the dialler has been told what there is to
// tell, and reason says under what it is counted.
func (s *Server) receive(nc net.Conn) (peer Peer, protocol string, reason int, err error) {
	if err := nc.SetDeadline(time.Now().Add(s.limits.Handshake)); err != nil {
		return Peer{}, "", refusedSilent, err
	}
	got, payload, err := readHello(nc)
	if err != nil {
		return Peer{}, "", refusalOf(err), err
	}
	a := answer{version: newestVersion, features: features, identity: s.identity()}
	rand.Read(a.nonce[:]) // never fails since Go 1.24
	refuse := func(reason int, err error) (Peer, string, int, error) {
		a.status, a.refusal = statusRefused, sundog.AsError(err)
		_, _ = nc.Write(seal(a.encode())) // the connection ends either way
		return peer, "", reason, err
	}
	h, err := decodeHello(payload)
	if err != nil {
		return refuse(refusedHello, err)
	}
	if h.role == roleClient {
		h.identity = Identity{Cluster: h.identity.Cluster} // a client cannot be a node in part
	}
	peer = Peer{Identity: h.identity, Addr: nc.RemoteAddr()}
	a.version = min(h.maxVersion, newestVersion)
	a.features &= h.features
	needProof := h.role == roleNode && len(s.cfg.Secret) != 0
	peer.IsNode = h.role == roleNode && !needProof && isLocal(peer.Addr)
	if reason, err := s.consider(&h, &a, peer, needProof); err != nil {
		return refuse(reason, err)
	}
	if !needProof {
		if err := s.admit(peer); err != nil {
			return refuse(refusedAdmit, err)
		}
		_, err := nc.Write(seal(a.encode()))
		return peer, h.protocol, refusedSilent, err
	}
	a.status = statusProve
	sent := seal(a.encode())
	if _, err := nc.Write(sent); err != nil {
		return peer, "", refusedSilent, err
	}
	reason, err = s.examine(nc, &peer, got, sent)
	return peer, h.protocol, reason, err
}

// consider refuses a hello for what it says, before anything is proved.
func (s *Server) consider(h *hello, a *answer, peer Peer, needProof bool) (int, error) {
	switch {
	case a.version < h.minVersion || a.version < oldestVersion:
		return refusedHello, sundog.Errorf(sundog.Invalid, "protocol versions %d to %d are offered; this node speaks %d to %d", h.minVersion, h.maxVersion, oldestVersion, newestVersion)
	case h.expect != 0 && h.expect != a.identity.Node:
		return refusedHello, sundog.Errorf(sundog.Unavailable, "node %s answers here, %s was expected", a.identity.Node, h.expect)
	case h.role == roleNode && !needProof && !peer.IsNode:
		return refusedProof, sundog.Errorf(sundog.Denied, "this node has no cluster secret and takes node connections from its own machine only")
	case h.protocol != "" && h.role != roleNode:
		return refusedProof, sundog.Errorf(sundog.Denied, "protocol %s is for nodes", h.protocol)
	case h.protocol != "" && s.cfg.Upgrade == nil:
		return refusedHello, sundog.Errorf(sundog.Invalid, "protocol %s is not spoken here", h.protocol)
	}
	return 0, nil
}

// examine reads a dialler's proof and answers with the server's own.
func (s *Server) examine(nc net.Conn, peer *Peer, hello, answer []byte) (int, error) {
	_, payload, err := readHello(nc)
	if err != nil {
		return refusalOf(err), err
	}
	reason := refusedProof
	mac, err := decodeProof(payload)
	if err == nil && !hmac.Equal(mac, prove(s.cfg.Secret, labelDialler, hello, answer)) {
		err = sundog.Errorf(sundog.Denied, "the proof does not fit this cluster's secret")
	}
	if err == nil {
		peer.IsNode = true
		reason, err = refusedAdmit, s.admit(*peer)
	}
	v := verdict{status: statusOK}
	if err != nil {
		v = verdict{status: statusRefused, refusal: sundog.AsError(err)}
		_, _ = nc.Write(seal(v.encode())) // the connection ends either way
		return reason, err
	}
	v.proof = prove(s.cfg.Secret, labelServer, hello, answer)
	_, err = nc.Write(seal(v.encode()))
	return refusedSilent, err
}

func (s *Server) identity() Identity {
	if s.cfg.Identity == nil {
		return Identity{}
	}
	return s.cfg.Identity()
}

func (s *Server) admit(p Peer) error {
	if s.cfg.Admit == nil {
		return nil
	}
	return s.cfg.Admit(p)
}

// refusalOf says under what a hello that could not be read is counted.
func refusalOf(err error) int {
	switch {
	case errors.Is(err, errMagic):
		return refusedMagic
	case sundog.KindOf(err) == sundog.TooLarge:
		return refusedHello
	}
	return refusedSilent
}
