package raftgroup

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// A snapshot goes over a connection of its own: the request (kindInstall), its
// bytes (kindChunk), their number (kindEnd). The receiver writes kindAlive while
// it works, then the answer; it may answer before it has all, and then reads on
// until the sender hangs up, since closing would take the answer away with it.
const (
	chunkSize   = 256 << 10
	aliveEvery  = time.Second
	streamGrace = 15 * time.Second // without progress a stream is given up
)

// InstallSnapshot is of raft.Transport. It waits for its turn when as many
// streams as allowed are under way, and as long as the receiver shows life.
func (t *transport) InstallSnapshot(_ raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	to := nodeOf(string(target))
	if to == 0 || to == t.self.Node {
		return sundog.Errorf(sundog.Unavailable, "raft: no snapshot can be sent to %s", target)
	}
	select {
	case t.mux.outgoing <- struct{}{}:
	case <-t.life.Done():
		return raft.ErrTransportShutdown
	}
	defer func() { <-t.mux.outgoing }()
	if t.muted != nil && t.muted() {
		return sundog.Errorf(sundog.Unavailable, "raft: the log disk does not answer")
	}
	ctx, cancel := context.WithTimeout(t.life, t.mux.cfg.Timeout)
	conn, err := t.mux.cfg.Dial(ctx, to, LaneSnapshot)
	cancel()
	t.mux.cfg.Metrics.dialled(LaneSnapshot, err)
	if err != nil {
		return sundog.Errorf(sundog.Unavailable, "raft: node %s is not reached: %w", to, err)
	}
	if !t.mux.track(conn) {
		_ = conn.Close()
		return raft.ErrTransportShutdown
	}
	defer t.mux.untrack(conn)
	s := &snapshotStream{t: t, conn: conn, target: target, node: to, answer: make(chan result, 1)}
	got, err := s.send(args, data)
	if err != nil {
		return err
	}
	*resp = *got
	return nil
}

// snapshotStream is the sender's end of one installation.
type snapshotStream struct {
	t      *transport
	conn   net.Conn
	target raft.ServerAddress
	node   sundog.NodeID
	answer chan result
}

func (s *snapshotStream) send(args *raft.InstallSnapshotRequest, data io.Reader) (*raft.InstallSnapshotResponse, error) {
	var reader sync.WaitGroup
	reader.Add(1)
	if !s.t.mux.start(func() { defer reader.Done(); s.readAnswer() }) {
		return nil, raft.ErrTransportShutdown
	}
	defer func() { _ = s.conn.Close(); reader.Wait() }()
	writeErr := s.write(args, data)
	if writeErr != nil && sundog.KindOf(writeErr) != sundog.Unavailable {
		return nil, writeErr
	}
	if writeErr != nil {
		// The receiver may have answered before it hung up.
		select {
		case r := <-s.answer:
			if r.err != nil {
				return nil, r.err
			}
			return r.resp.(*raft.InstallSnapshotResponse), nil
		case <-time.After(s.t.mux.cfg.Timeout):
		case <-s.t.life.Done():
		}
		return nil, writeErr
	}
	select {
	case r := <-s.answer:
		if r.err != nil {
			return nil, r.err
		}
		return r.resp.(*raft.InstallSnapshotResponse), nil
	case <-s.t.life.Done():
		return nil, raft.ErrTransportShutdown
	}
}

func (s *snapshotStream) write(args *raft.InstallSnapshotRequest, data io.Reader) error {
	w := frameWriter{conn: s.conn, timeout: streamGrace}
	inc := s.t.peerIncarnation(s.target)
	put := func(kind byte, b []byte) error {
		err := w.write([]*message{newMessage(kind, s.t.group, inc, s.t.self.Incarnation, 0, b)})
		if err != nil {
			return sundog.Errorf(sundog.Unavailable, "raft: snapshot to node %s: %w", s.node, err)
		}
		return nil
	}
	if err := put(kindInstall, encodeInstall(args)); err != nil {
		return err
	}
	buf := make([]byte, chunkSize)
	sent := uint64(0)
	for !s.t.life.over() {
		if len(s.answer) > 0 {
			return nil // the receiver needs no more to answer
		}
		n, err := io.ReadFull(data, buf)
		sent += uint64(n)
		if n > 0 {
			if err := put(kindChunk, buf[:n]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			if int64(sent) != args.Size {
				return sundog.Errorf(sundog.Corrupt, "raft: snapshot has %d bytes of %d", sent, args.Size)
			}
			return put(kindEnd, binary.LittleEndian.AppendUint64(nil, sent))
		default:
			return err
		}
	}
	return raft.ErrTransportShutdown
}

// readAnswer reads signs of life up to the answer.
func (s *snapshotStream) readAnswer() {
	r := bufio.NewReader(deadlineReader{s.conn, streamGrace})
	for {
		msg, err := readMessage(r)
		switch {
		case err != nil:
			s.answer <- result{err: sundog.Errorf(sundog.Unavailable, "raft: snapshot to node %s: %w", s.node, noEOF(err))}
		case msg.kind == kindAlive:
			continue
		case msg.kind == kindError:
			s.answer <- result{err: decodeRefusal(msg.payload)}
		case msg.kind == kindInstall|kindAnswer:
			resp, err := decodeAnswer(kindInstall, msg.payload, headerOf(s.node, msg.from))
			s.answer <- result{resp: resp, err: err}
		default:
			s.answer <- result{err: corrupt("answer to a snapshot")}
		}
		return
	}
}

func (t *transport) peerIncarnation(target raft.ServerAddress) uint32 {
	_, inc := splitServer(string(target))
	return inc
}

// receiveSnapshot serves one accepted snapshot connection.
func (m *Mux) receiveSnapshot(conn net.Conn, node sundog.NodeID) {
	defer m.untrack(conn)
	r := bufio.NewReaderSize(deadlineReader{conn, streamGrace}, 64<<10)
	msg, err := readMessage(r)
	if err != nil {
		m.cfg.Logger.Debug("raft snapshot connection ended", "peer", node, "error", err)
		return
	}
	w := &frameWriter{conn: conn, timeout: m.cfg.Timeout}
	put := func(kind byte, payload []byte) error {
		return w.write([]*message{newMessage(kind, msg.group, msg.from, msg.to, msg.id, payload)})
	}
	in := installation{mux: m, msg: &msg, body: r, put: put}
	resp, err := in.run(node)
	if err != nil {
		m.cfg.Logger.Info("raft snapshot refused", "group", msg.group.String(), "peer", node, "error", err)
		err = put(kindError, encodeRefusal(err))
	} else {
		err = put(kindInstall|kindAnswer, resp)
	}
	if err != nil {
		m.cfg.Logger.Debug("raft snapshot answer not written", "peer", node, "error", err)
	} else if !in.handed {
		_, _ = io.Copy(io.Discard, r) // until the sender hangs up, or is silent
	}
}

// installation is the receiver's end of a snapshot.
type installation struct {
	mux    *Mux
	msg    *received
	body   *bufio.Reader
	put    func(kind byte, payload []byte) error
	handed bool // raft reads the body
}

// run decides on the request, or has its group carry it out, and returns the
// encoded answer.
func (in *installation) run(node sundog.NodeID) ([]byte, error) {
	m, msg := in.mux, in.msg
	t := m.lookup(msg.group)
	if t == nil || t.self.Incarnation != msg.to {
		m.cfg.Metrics.refuse("unknown group")
		return nil, sundog.Errorf(sundog.NotFound, "node %s has no replica %d of %s", m.cfg.Self, msg.to, msg.group)
	}
	if msg.kind != kindInstall {
		return nil, corrupt("snapshot connection")
	}
	req, err := decodeInstall(msg.payload, headerOf(node, msg.from))
	if err != nil {
		return nil, err
	}
	select {
	case m.incoming <- struct{}{}:
	default:
		return nil, sundog.Errorf(sundog.Unavailable, "node %s receives %d snapshots already", m.cfg.Self, cap(m.incoming))
	}
	defer func() { <-m.incoming }()
	if t.admit != nil {
		a, err := t.admit(req)
		if err != nil {
			return nil, err
		}
		if a.release != nil {
			defer a.release()
		}
		if a.answer != nil {
			return encodeAnswer(a.answer)
		}
	}
	resp := make(chan raft.RPCResponse, 1)
	select {
	case t.inbox <- raft.RPC{Command: req, Reader: &snapshotReader{r: in.body, msg: msg}, RespChan: resp}:
		in.handed = true
	default:
		return nil, sundog.Errorf(sundog.Unavailable, "replica of %s is busy", msg.group)
	}
	got, err := in.await(resp, t.life.Done(), sundog.Errorf(sundog.Closed, "replica of %s is closed", msg.group))
	if err != nil {
		return nil, err
	}
	if got.Error != nil {
		return nil, got.Error
	}
	if a, ok := got.Response.(*raft.InstallSnapshotResponse); ok && a.Success && t.installed != nil {
		// This may make the raft instance anew, and so end t: what counts is that
		// the sender hears of life until it is done.
		told := make(chan raft.RPCResponse, 1)
		if m.start(func() { t.installed(req.LastLogIndex); told <- got }) {
			_, err = in.await(told, nil, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return encodeAnswer(got.Response)
}

// await waits for an answer, and shows the sender life meanwhile; it gives up
// with the error when the channel gone, if any, is closed.
func (in *installation) await(answer <-chan raft.RPCResponse, gone <-chan struct{}, because error) (raft.RPCResponse, error) {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case got := <-answer:
			return got, nil
		case <-alive.C:
			// A sender that has gone is found out by the reader, or by nobody; raft
			// finishes what it has.
			_ = in.put(kindAlive, nil)
		case <-gone:
			return raft.RPCResponse{}, because
		case <-in.mux.life.Done():
			return raft.RPCResponse{}, sundog.Errorf(sundog.Closed, "raft transport is closed")
		}
	}
}

// snapshotReader reads a snapshot's bytes from its chunks; io.EOF comes only
// after a kindEnd that agrees with what came before.
type snapshotReader struct {
	r     io.Reader
	msg   *received
	chunk []byte
	got   uint64
	err   error
}

// Read is of io.Reader.
func (s *snapshotReader) Read(b []byte) (int, error) {
	for len(s.chunk) == 0 && s.err == nil {
		s.next()
	}
	if len(s.chunk) == 0 {
		return 0, s.err
	}
	n := copy(b, s.chunk)
	s.chunk = s.chunk[n:]
	return n, nil
}

func (s *snapshotReader) next() {
	msg, err := readMessage(s.r)
	switch {
	case err != nil:
		s.err = noEOF(err)
	case msg.group != s.msg.group || msg.to != s.msg.to || msg.from != s.msg.from:
		s.err = corrupt("snapshot chunk")
	case msg.kind == kindChunk:
		s.chunk = msg.payload
		s.got += uint64(len(msg.payload))
	case msg.kind == kindEnd && len(msg.payload) == 8 && binary.LittleEndian.Uint64(msg.payload) == s.got:
		s.err = io.EOF
	default:
		s.err = corrupt("snapshot chunk")
	}
}
