package raftgroup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"go.uber.org/goleak"
)

const testProtocol = raft.ProtocolVersionMax

func serverID(node sundog.NodeID, inc uint32) string {
	return ring.Replica{Node: node, Incarnation: inc}.ServerID()
}

func headerFor(node sundog.NodeID, inc uint32) raft.RPCHeader {
	h := headerOf(node, inc)
	h.ProtocolVersion = testProtocol
	return h
}

// muxPair is two nodes with one group each way; serve answers node 2's requests.
type muxPair struct {
	net    *network
	a, b   *Mux
	ta, tb *transport
}

func newMuxPair(t *testing.T, cfg MuxConfig, loopback bool) *muxPair {
	p := &muxPair{net: newNetwork()}
	p.net.loopback = loopback
	p.a, p.b = p.net.add(t, 1, cfg), p.net.add(t, 2, cfg)
	var err error
	p.ta, err = p.a.newTransport(9, serverID(1, 1))
	require.NoError(t, err)
	require.NoError(t, p.ta.open())
	p.tb, err = p.b.newTransport(9, serverID(2, 3))
	require.NoError(t, err)
	require.NoError(t, p.tb.open())
	t.Cleanup(func() {
		for _, c := range []io.Closer{p.ta, p.tb, p.a, p.b} {
			require.NoError(t, c.Close())
		}
		goleak.VerifyNone(t)
	})
	return p
}

// serve answers every request of node 2's group with fn until the test ends.
func (p *muxPair) serve(t *testing.T, fn func(rpc raft.RPC)) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case rpc := <-p.tb.Consumer():
				fn(rpc)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

const to2 = raft.ServerAddress("0000000000000002/3")

func TestMuxCarriesEveryRPC(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, true)
	appendReq := &raft.AppendEntriesRequest{
		RPCHeader: headerFor(1, 1), Term: 7, PrevLogEntry: 4, PrevLogTerm: 6, LeaderCommitIndex: 3,
		Entries: []*raft.Log{
			{Index: 5, Term: 7, Type: raft.LogCommand, Data: []byte("x"), AppendedAt: time.Unix(0, 99)},
			{Index: 6, Term: 7, Type: raft.LogConfiguration, Data: bytes.Repeat([]byte("y"), 3<<20), Extensions: []byte("ext")},
			{Index: 7, Term: 7, Type: raft.LogNoop, Data: []byte{}},
		},
	}
	vote := &raft.RequestVoteRequest{RPCHeader: headerFor(1, 1), Term: 8, LastLogIndex: 5, LastLogTerm: 7, LeadershipTransfer: true}
	pre := &raft.RequestPreVoteRequest{RPCHeader: headerFor(1, 1), Term: 9, LastLogIndex: 5, LastLogTerm: 7}
	now := &raft.TimeoutNowRequest{RPCHeader: headerFor(1, 1)}
	got := make(chan any, 1)
	p.serve(t, func(rpc raft.RPC) {
		got <- rpc.Command
		switch rpc.Command.(type) {
		case *raft.AppendEntriesRequest:
			rpc.Respond(&raft.AppendEntriesResponse{Term: 7, LastLog: 9, NoRetryBackoff: true}, nil)
		case *raft.RequestVoteRequest:
			rpc.Respond(&raft.RequestVoteResponse{Term: 8, Granted: true}, nil)
		case *raft.RequestPreVoteRequest:
			rpc.Respond(nil, errors.New("unexpected command"))
		case *raft.TimeoutNowRequest:
			rpc.Respond(&raft.TimeoutNowResponse{}, nil)
		}
	})
	answerHeader := headerFor(2, 3)

	var ar raft.AppendEntriesResponse
	require.NoError(t, p.ta.AppendEntries("", to2, appendReq, &ar))
	require.Equal(t, appendReq, <-got)
	require.Equal(t, raft.AppendEntriesResponse{RPCHeader: answerHeader, Term: 7, LastLog: 9, NoRetryBackoff: true}, ar)

	var vr raft.RequestVoteResponse
	require.NoError(t, p.ta.RequestVote("", to2, vote, &vr))
	require.Equal(t, vote, <-got)
	require.Equal(t, raft.RequestVoteResponse{RPCHeader: answerHeader, Term: 8, Granted: true}, vr)

	// raft takes the text "unexpected command" of a peer for a granted pre-vote.
	var pr raft.RequestPreVoteResponse
	err := p.ta.RequestPreVote("", to2, pre, &pr)
	require.Equal(t, pre, <-got)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "unexpected command")

	require.NoError(t, p.ta.TimeoutNow("", to2, now, &raft.TimeoutNowResponse{}))
	require.Equal(t, now, <-got)
	require.Equal(t, 4, p.net.connections(), "two ends of two lanes")
}

func heartbeat() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: headerFor(1, 1), Term: 7}
}

func TestMuxRefusesQuickly(t *testing.T) {
	p := newMuxPair(t, MuxConfig{Timeout: time.Minute}, false)
	for _, target := range []raft.ServerAddress{"0000000000000002/4", "0000000000000003/1", "0000000000000001/2", "nonsense"} {
		err := p.ta.AppendEntries("", target, heartbeat(), &raft.AppendEntriesResponse{})
		require.Error(t, err, target)
		require.NotErrorIs(t, err, sundog.Timeout)
	}
	other, err := p.a.newTransport(10, serverID(1, 1))
	require.NoError(t, err)
	err = other.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{})
	require.ErrorIs(t, err, sundog.NotFound)
	// A group whose thread does not take its requests refuses those beyond its inbox.
	var wg sync.WaitGroup
	busy := make(chan error, inboxSize+10)
	for range inboxSize + 10 {
		wg.Go(func() {
			if err := p.ta.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{}); errors.Is(err, sundog.Unavailable) {
				busy <- err
			}
		})
	}
	require.ErrorContains(t, <-busy, "busy")
	require.NoError(t, p.ta.Close()) // ends all others
	wg.Wait()
	require.Error(t, p.ta.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{}))
	_, err = p.a.newTransport(9, serverID(2, 1))
	require.ErrorIs(t, err, sundog.Invalid, "a replica of another node")
	require.ErrorIs(t, p.tb.open(), sundog.Conflict)
}

// TestInboxesAreBoundedByBytes: a group that serves nothing holds its share and
// no more, and another one's requests still come through.
func TestInboxesAreBoundedByBytes(t *testing.T) {
	const size, limit = 300 << 10, 1 << 20 // a share is less than two requests
	p := newMuxPair(t, MuxConfig{InboxBytes: limit, Timeout: time.Minute}, true)
	send := func(t9 *transport, to raft.ServerAddress) error {
		req := heartbeat()
		req.Entries = entries(1, 1, 7, size)
		return t9.AppendEntries("", to, req, &raft.AppendEntriesResponse{})
	}
	held := func() int64 {
		p.b.intake.mu.Lock()
		defer p.b.intake.mu.Unlock()
		return p.b.intake.total
	}
	outcomes := make(chan error, 4)
	for range 4 {
		go func() { outcomes <- send(p.ta, to2) }()
	}
	for range 3 { // nobody serves the group
		require.ErrorContains(t, <-outcomes, "busy")
		require.Less(t, held(), int64(2*size))
	}
	var others []io.Closer
	for group := range GroupID(5) { // together more than the limit
		from, err := p.a.newTransport(group, serverID(1, 1))
		require.NoError(t, err)
		to, err := p.b.newTransport(group, serverID(2, 3))
		require.NoError(t, err)
		require.NoError(t, to.open())
		others = append(others, from, to)
		go func() { _ = send(from, to2) }()
		eventually(t, "in its inbox", func() bool { return len(to.inbox) == 1 })
	}
	require.Greater(t, held(), int64(limit))
	rpc := <-p.tb.Consumer()
	rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
	require.NoError(t, <-outcomes)
	for _, c := range others {
		require.NoError(t, c.Close())
	}
	eventually(t, "all is given back", func() bool { return held() == 0 })
}

func TestMuxReconnects(t *testing.T) {
	p := newMuxPair(t, MuxConfig{Timeout: 2 * time.Second, DeadAfter: 90 * time.Millisecond}, false)
	p.serve(t, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil) })
	ok := func() bool {
		return p.ta.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{}) == nil
	}
	eventually(t, "connects", ok)
	p.net.set(1, 2, hard)
	require.False(t, ok())
	p.net.set(1, 2, whole)
	eventually(t, "reconnects after a reset", ok)
	// Silence: the call is failed long before its own timeout, since the peer owes
	// an answer and sends nothing.
	p.net.set(1, 2, silent)
	start := time.Now()
	require.False(t, ok())
	require.Less(t, time.Since(start), 1500*time.Millisecond)
	p.net.set(1, 2, whole)
	eventually(t, "reconnects after silence", ok)
}

// TestMuxUrgentPassesBulk: an answer and a heartbeat do not wait for a bulk
// connection that is stuck.
func TestMuxUrgentPassesBulk(t *testing.T) {
	wire := newNetwork()
	a, b := wire.add(t, 1, MuxConfig{}), wire.add(t, 2, MuxConfig{})
	stuck := make(chan struct{})
	dial := a.cfg.Dial
	a.cfg.Dial = func(ctx context.Context, to sundog.NodeID, lane string) (net.Conn, error) {
		c, err := dial(ctx, to, lane)
		if lane == LaneBulk && err == nil {
			c = &stuckConn{Conn: c, until: stuck}
		}
		return c, err
	}
	ta, err := a.newTransport(9, serverID(1, 1))
	require.NoError(t, err)
	tb, err := b.newTransport(9, serverID(2, 3))
	require.NoError(t, err)
	require.NoError(t, tb.open())
	p := &muxPair{net: wire, a: a, b: b, ta: ta, tb: tb}
	p.serve(t, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil) })
	big := heartbeat()
	big.Entries = entries(1, 10, 1, 1<<20)
	bulk := make(chan error, 1)
	go func() { bulk <- ta.AppendEntries("", to2, big, &raft.AppendEntriesResponse{}) }()
	for range 20 {
		require.NoError(t, ta.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{}))
	}
	select {
	case err := <-bulk:
		t.Fatalf("the bulk request came through: %v", err)
	default:
	}
	close(stuck)
	require.NoError(t, <-bulk)
	for _, c := range []io.Closer{ta, tb, a, b} {
		require.NoError(t, c.Close())
	}
}

// stuckConn writes nothing until a channel is closed.
type stuckConn struct {
	net.Conn
	until chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	<-c.until
	return c.Conn.Write(b)
}

func TestPipelineKeepsOrder(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, true)
	seen := make(chan uint64, 1000)
	p.serve(t, func(rpc raft.RPC) {
		a := rpc.Command.(*raft.AppendEntriesRequest)
		seen <- a.Entries[0].Index
		rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: a.Entries[0].Index}, nil)
	})
	pipe, err := p.ta.AppendEntriesPipeline("", to2)
	require.NoError(t, err)
	const n = 500
	go func() {
		for i := uint64(1); i <= n; i++ {
			req := heartbeat()
			req.Entries = entries(i, i, 1, int(i%7)*3000)
			if _, err := pipe.AppendEntries(req, new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := uint64(1); i <= n; i++ {
		f := <-pipe.Consumer()
		require.NoError(t, f.Error())
		require.Equal(t, i, f.Request().Entries[0].Index)
		require.Equal(t, i, f.Response().LastLog)
		require.Equal(t, i, <-seen)
	}
	require.NoError(t, pipe.Close())
}

// TestPipelineLeavesOutTheKnown: requests that tell nothing new are not sent,
// and a new commit index is.
func TestPipelineLeavesOutTheKnown(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, false)
	served := make(chan uint64, 100)
	p.serve(t, func(rpc raft.RPC) {
		served <- rpc.Command.(*raft.AppendEntriesRequest).LeaderCommitIndex
		rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
	})
	pipe, err := p.ta.AppendEntriesPipeline("", to2)
	require.NoError(t, err)
	send := func(commit uint64) {
		req := heartbeat()
		req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = 9, 7, commit
		_, err := pipe.AppendEntries(req, new(raft.AppendEntriesResponse))
		require.NoError(t, err)
	}
	send(5)
	<-pipe.Consumer()
	for range 10 {
		send(5)
	}
	send(6)
	<-pipe.Consumer()
	require.EqualValues(t, 5, <-served)
	require.EqualValues(t, 6, <-served)
	require.Empty(t, served)
	eventually(t, "told again after a while", func() bool { send(6); return len(served) == 1 })
	require.NoError(t, pipe.Close())
}

func TestPipelineFails(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, false)
	pipe, err := p.ta.AppendEntriesPipeline("", to2)
	require.NoError(t, err)
	req := heartbeat()
	req.Entries = entries(1, 1, 1, 10)
	f, err := pipe.AppendEntries(req, new(raft.AppendEntriesResponse))
	require.NoError(t, err)
	eventually(t, "sent", func() bool { return len(p.tb.inbox) == 1 })
	p.net.set(1, 2, hard)
	require.Equal(t, f, <-pipe.Consumer())
	require.Error(t, f.Error())
	require.False(t, f.Response().Success)
	_, err = pipe.AppendEntries(req, new(raft.AppendEntriesResponse))
	require.Error(t, err)
	require.NoError(t, pipe.Close())
}

// TestMuxHostileBytes: garbage on a connection ends that connection only.
func TestMuxHostileBytes(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, true)
	p.serve(t, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil) })
	for _, lane := range []string{LaneBulk, LaneUrgent, LaneSnapshot} {
		for _, junk := range [][]byte{
			[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789"),
			bytes.Repeat([]byte{0xff}, 64),
			make([]byte, 64),
		} {
			c, err := p.net.dial(t.Context(), 3, 2, lane)
			require.NoError(t, err)
			_, err = c.Write(junk)
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err = c.Read(make([]byte, 1))
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "hung up at once")
			require.NoError(t, c.Close())
		}
	}
	require.NoError(t, p.ta.AppendEntries("", to2, heartbeat(), &raft.AppendEntriesResponse{}))
	c1, c2 := net.Pipe()
	defer c1.Close()
	defer c2.Close()
	require.ErrorIs(t, p.b.Accept(c1, 1, "nonsense"), sundog.Invalid)
	require.ErrorIs(t, p.b.Accept(c1, 2, LaneBulk), sundog.Denied)
}
