package raftgroup

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// inboxSize bounds the requests of one group that wait for its raft thread. A
// leader has pipelineWindow and a few more under way; the rest is room for
// candidates and for requests whose sender has given up.
const inboxSize = 64

// answerShare of the tick of heartbeats is the tick of their answers.
const answerShare = 25

// transport is the raft.Transport of one replica. Addresses are server ids:
// where a node lives is the Mux's business, so that a new address needs no
// change of configuration.
type transport struct {
	mux   *Mux
	group GroupID
	self  ring.Replica
	addr  raft.ServerAddress
	life  *lifetime

	inbox chan raft.RPC
	// owed are the requests in the inbox or being served, in order.
	owed     chan owedAnswer
	held     int64         // bytes of these, guarded by the mux's intake
	answerer chan struct{} // closed when its goroutine has ended

	// heartbeat is what SetHeartbeatHandler gave; the shipped build ignores it.
	heartbeat func(raft.RPC)
	// hold is the tick on which heartbeats go out, 0 for at once.
	hold time.Duration
	// muted, if set, tells that requests must not be sent (a hung log disk).
	muted func() bool
	// admit, if set, is asked before each installation of a snapshot; installed is
	// told of each one that raft carried out.
	admit     func(*raft.InstallSnapshotRequest) (admission, error)
	installed func(lastIndex uint64)
}

// admission lets a snapshot in, until release is called, or answers for it.
type admission struct {
	answer  *raft.InstallSnapshotResponse // nil: to be installed
	release func()                        // nil: nothing to do
}

// owedAnswer is a request that raft will answer on resp.
type owedAnswer struct {
	in   *inbound
	msg  received      // its header
	beat bool          // it is a heartbeat
	size *atomic.Int64 // bytes taken from the mux's intake, until they are given back
	resp chan raft.RPCResponse
}

// newTransport makes the transport of the replica self ("node/incarnation") of a
// group; see open. Kind Invalid when self is not a server id of this node.
func (m *Mux) newTransport(id GroupID, self string) (*transport, error) {
	replica, err := ring.ParseServerID(self)
	if err != nil {
		return nil, err
	}
	if replica.Node != m.cfg.Self {
		return nil, sundog.Errorf(sundog.Invalid, "raft group %s: %s is not a replica of node %s", id, self, m.cfg.Self)
	}
	t := &transport{
		mux: m, group: id, self: replica, addr: raft.ServerAddress(self), life: newLifetime(),
		inbox: make(chan raft.RPC, inboxSize), owed: make(chan owedAnswer, inboxSize),
		answerer: make(chan struct{}),
	}
	return t, nil
}

// open registers the transport: from now on it takes requests.
func (t *transport) open() error {
	t.mux.mu.Lock()
	defer t.mux.mu.Unlock()
	if t.mux.transports[t.group] != nil {
		return sundog.Errorf(sundog.Conflict, "raft group %s is open already", t.group)
	}
	if !t.mux.startLocked(t.answer) {
		return sundog.Errorf(sundog.Closed, "raft transport is closed")
	}
	t.mux.transports[t.group] = t
	return nil
}

// Close takes the replica off the wire and fails its calls.
func (t *transport) Close() error {
	if t.life.close() {
		t.mux.mu.Lock()
		opened := t.mux.transports[t.group] == t
		if opened {
			delete(t.mux.transports, t.group)
		}
		t.mux.mu.Unlock()
		if opened {
			<-t.answerer
		}
	}
	return nil
}

// Consumer is where raft takes requests.
func (t *transport) Consumer() <-chan raft.RPC { return t.inbox }

// LocalAddr is the replica's server id.
func (t *transport) LocalAddr() raft.ServerAddress { return t.addr }

// EncodePeer returns the address, which is the server id.
func (t *transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer reads what EncodePeer wrote.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing: heartbeats go to the consumer channel like
// every request. raft's handler would run beside its main thread and could set
// the term back (hashicorp/raft issue 695).
func (t *transport) SetHeartbeatHandler(handler func(raft.RPC)) {
	if mutantHeartbeatHandler {
		t.heartbeat = handler
	}
}

// serverNames makes raft headers of one peer's replicas.
type serverNames struct {
	node   sundog.NodeID
	header map[uint32]raft.RPCHeader
}

func (n *serverNames) of(incarnation uint32) raft.RPCHeader {
	h, ok := n.header[incarnation]
	if !ok {
		h = headerOf(n.node, incarnation)
		if n.header == nil || len(n.header) > 1024 {
			n.header = make(map[uint32]raft.RPCHeader)
		}
		n.header[incarnation] = h
	}
	return h
}

func headerOf(node sundog.NodeID, incarnation uint32) raft.RPCHeader {
	name := []byte(ring.Replica{Node: node, Incarnation: incarnation}.ServerID())
	return raft.RPCHeader{ID: name, Addr: name}
}

// request hands a peer's request to its group, or refuses it at once: a reader
// never waits for a group.
func (m *Mux) request(in *inbound, msg *received, names *serverNames) {
	refuse := func(reason string, err error) {
		m.cfg.Metrics.refuse(reason)
		in.reply(newMessage(kindError, msg.group, msg.from, msg.to, msg.id, encodeRefusal(err)))
	}
	t := m.lookup(msg.group)
	if t == nil || t.self.Incarnation != msg.to {
		refuse("unknown group", sundog.Errorf(sundog.NotFound, "node %s has no replica %d of %s", m.cfg.Self, msg.to, msg.group))
		return
	}
	cmd, err := decodeRequest(msg, names.of(msg.from))
	if err != nil {
		refuse("corrupt request", err)
		return
	}
	owed := owedAnswer{in: in, msg: *msg, size: new(atomic.Int64), resp: make(chan raft.RPCResponse, 1)}
	owed.msg.payload = nil
	rpc := raft.RPC{Command: cmd, RespChan: owed.resp}
	if a, ok := cmd.(*raft.AppendEntriesRequest); ok {
		owed.beat = isHeartbeat(a)
	}
	if mutantHeartbeatHandler && t.heartbeat != nil && owed.beat {
		t.heartbeat(rpc)
		t.finish(owed, <-owed.resp)
		return
	}
	busy := sundog.Errorf(sundog.Unavailable, "replica of %s is busy", msg.group)
	if size := int64(len(msg.payload)); size > 0 && !owed.beat {
		if !m.intake.admit(t, size, in.lane == LaneBulk) {
			refuse("group busy", busy)
			return
		}
		owed.size.Store(size)
	}
	select {
	case t.owed <- owed:
	default:
		t.free(owed)
		refuse("group busy", busy)
		return
	}
	select {
	case t.inbox <- rpc:
	default:
		owed.resp <- raft.RPCResponse{Error: busy}
	}
	if t.life.over() { // it may have been closed between; a second answer is dropped
		t.free(owed)
		refuse("unknown group", sundog.Errorf(sundog.Closed, "replica of %s is closed", msg.group))
	}
}

func decodeRequest(msg *received, header raft.RPCHeader) (any, error) {
	switch msg.kind {
	case kindAppend:
		return decodeAppend(msg.payload, header)
	case kindVote:
		return decodeVote(msg.payload, header)
	case kindPreVote:
		return decodePreVote(msg.payload, header)
	case kindTimeoutNow:
		return decodeTimeoutNow(msg.payload, header)
	}
	return nil, sundog.Errorf(sundog.Corrupt, "raft message of kind %d", msg.kind)
}

// answer sends raft's answers. raft serves requests one after the other, so
// waiting for them in order of arrival delays none. What raft leaves unserved is
// refused, so that no peer waits for its timeout.
func (t *transport) answer() {
	defer close(t.answerer)
	closed := raft.RPCResponse{Error: sundog.Errorf(sundog.Closed, "replica of %s is closed", t.group)}
	for {
		select {
		case owed := <-t.owed:
			select {
			case r := <-owed.resp:
				t.finish(owed, r)
			case <-t.life.Done():
				t.finish(owed, closed)
			case <-t.mux.life.Done():
				return
			}
		case <-t.life.Done():
			for {
				select {
				case owed := <-t.owed:
					t.finish(owed, closed)
				default:
					return
				}
			}
		case <-t.mux.life.Done():
			return
		}
	}
}

// free gives back what a request took from the intake, once.
func (t *transport) free(owed owedAnswer) { t.mux.intake.give(t, owed.size.Swap(0)) }

func (t *transport) finish(owed owedAnswer, r raft.RPCResponse) {
	t.free(owed)
	m := &owed.msg
	kind, payload, err := m.kind|kindAnswer, []byte(nil), r.Error
	if err == nil {
		payload, err = encodeAnswer(r.Response)
	}
	if err != nil {
		kind, payload = kindError, encodeRefusal(err)
	}
	out := newMessage(kind, m.group, m.from, m.to, m.id, payload)
	if owed.beat {
		// Heartbeats of many groups came together; so may their answers go.
		out.hold = t.hold / answerShare
	}
	owed.in.reply(out)
}

// begin sends a request to target.
func (t *transport) begin(target raft.ServerAddress, kind byte, urgent bool, hold time.Duration, parts ...[]byte) (*call, *peer, error) {
	to, err := ring.ParseServerID(string(target))
	if err != nil {
		return nil, nil, err
	}
	if to.Node == t.self.Node {
		return nil, nil, sundog.Errorf(sundog.Unavailable, "raft: %s is this node", target)
	}
	if t.life.over() {
		return nil, nil, raft.ErrTransportShutdown
	}
	if t.muted != nil && t.muted() {
		return nil, nil, sundog.Errorf(sundog.Unavailable, "raft: the log disk does not answer")
	}
	p := t.mux.peer(to.Node)
	l := p.bulk
	if urgent {
		l = p.urgent
	}
	m := newMessage(kind, t.group, to.Incarnation, t.self.Incarnation, t.mux.ids.Add(1), parts...)
	m.hold = hold
	c, err := p.ask(l, m, to.Incarnation)
	return c, p, err
}

// timeout is the time an answer may take to a request of the size.
func (t *transport) timeout(size int) time.Duration {
	return t.mux.cfg.Timeout + t.mux.cfg.Timeout*time.Duration(size)>>20
}

// wait returns the call's answer.
func (t *transport) wait(c *call, p *peer, timeout time.Duration) (any, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-c.done:
		return r.resp, r.err
	case <-timer.C:
		p.forget(c)
		return nil, sundog.Errorf(sundog.Timeout, "raft: node %s has not answered for %s", p.node, timeout)
	case <-t.life.Done():
		p.forget(c)
		return nil, raft.ErrTransportShutdown
	}
}

// roundTrip sends a request and copies its answer into resp.
func roundTrip[T any](t *transport, target raft.ServerAddress, kind byte, urgent bool, hold time.Duration, resp *T, parts ...[]byte) error {
	c, p, err := t.begin(target, kind, urgent, hold, parts...)
	if err != nil {
		return err
	}
	size := 0
	for _, b := range parts {
		size += len(b)
	}
	got, err := t.wait(c, p, t.timeout(size))
	if err != nil {
		return err
	}
	*resp = *(got.(*T))
	return nil
}

// AppendEntries is of raft.Transport: heartbeats go by the urgent lane, the rest
// by the bulk lane.
func (t *transport) AppendEntries(_ raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	parts, err := encodeAppend(args)
	if err != nil {
		return err
	}
	if isHeartbeat(args) {
		return roundTrip(t, target, kindAppend, true, t.hold, resp, parts...)
	}
	return roundTrip(t, target, kindAppend, false, 0, resp, parts...)
}

// RequestVote is of raft.Transport.
func (t *transport) RequestVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return roundTrip(t, target, kindVote, true, 0, resp, encodeVote(args))
}

// RequestPreVote is of raft.WithPreVote.
func (t *transport) RequestPreVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	err := roundTrip(t, target, kindPreVote, true, 0, resp, encodePreVote(args))
	// raft takes this text for a peer that is too old to know pre-votes, and so
	// for a granted one.
	if err != nil && strings.Contains(err.Error(), "unexpected command") {
		return sundog.Errorf(sundog.Unavailable, "raft: pre-vote refused by %s", target)
	}
	return err
}

// TimeoutNow is of raft.Transport.
func (t *transport) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return roundTrip(t, target, kindTimeoutNow, true, 0, resp, []byte{byte(args.ProtocolVersion)})
}
