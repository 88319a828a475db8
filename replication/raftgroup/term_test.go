package raftgroup

import (
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// termTrials plays the schedule of hashicorp/raft issue 695 through the real
// transport and the real store, whose commits are slow: N has just booted in
// term 1 and knows no leader. M asks for its vote in term 3 while a heartbeat of
// L, leader of term 2, is on its way. Then L sends an entry of term 2. A voter
// that has granted term 3 must not acknowledge it: M may lead term 3 without the
// entry, which L takes for committed. It returns how often N did.
func termTrials(t *testing.T, trials int) (granted, violations int) {
	delay := func() time.Duration { return 500*time.Microsecond + rand.N(1500*time.Microsecond) }
	wire := newNetwork()
	store := newStore(t, filepath.Join(t.TempDir(), "raft.db"), StoreConfig{StallAfter: -1},
		storeHooks{beforeCommit: func() { time.Sleep(delay()) }})
	l, n, m := wire.add(t, 1, MuxConfig{}), wire.add(t, 2, MuxConfig{}), wire.add(t, 3, MuxConfig{})
	defer func() {
		for _, c := range []io.Closer{l, m, n} {
			require.NoError(t, c.Close())
		}
	}()
	for trial := range trials {
		vote, ack := termTrial(t, GroupID(trial+1), store, l, n, m)
		if vote {
			granted++
		}
		if vote && ack {
			violations++
		}
	}
	return granted, violations
}

func termTrial(t *testing.T, id GroupID, store *Store, l, n, m *Mux) (vote, ack bool) {
	names := []string{serverID(1, 1), serverID(2, 1), serverID(3, 1)}
	log := store.Group(id)
	require.NoError(t, log.load())
	require.NoError(t, log.bootstrap(newConfiguration(names), "test"))
	wire, err := n.newTransport(id, names[1])
	require.NoError(t, err)
	require.NoError(t, wire.open())
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(names[1])
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Hour, time.Hour
	conf.Logger = hclog.NewNullLogger()
	r, err := raft.NewRaft(conf, &fsm{machine: newLedger(), failed: func(error) {}}, log, log, raft.NewDiscardSnapshotStore(), wire)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, wire.Close())
		require.NoError(t, r.Shutdown().Error())
	}()
	from := func(mux *Mux, name string) *transport {
		tr, err := mux.newTransport(id, name)
		require.NoError(t, err)
		return tr
	}
	leader, candidate := from(l, names[0]), from(m, names[2])
	target := raft.ServerAddress(names[1])
	head := func(node int) raft.RPCHeader {
		return raft.RPCHeader{ProtocolVersion: testProtocol, ID: []byte(names[node]), Addr: []byte(names[node])}
	}
	var both sync.WaitGroup
	both.Go(func() {
		time.Sleep(rand.N(time.Millisecond))
		var resp raft.RequestVoteResponse
		req := &raft.RequestVoteRequest{RPCHeader: head(2), Term: 3, LastLogIndex: 1, LastLogTerm: 1}
		if err := candidate.RequestVote("", target, req, &resp); err == nil {
			vote = resp.Granted
		}
	})
	both.Go(func() {
		time.Sleep(rand.N(3 * time.Millisecond))
		beat := &raft.AppendEntriesRequest{RPCHeader: head(0), Term: 2}
		_ = leader.AppendEntries("", target, beat, &raft.AppendEntriesResponse{})
	})
	both.Wait()
	var resp raft.AppendEntriesResponse
	req := &raft.AppendEntriesRequest{
		RPCHeader: head(0), Term: 2, PrevLogEntry: 1, PrevLogTerm: 1,
		Entries: []*raft.Log{{Index: 2, Term: 2, Type: raft.LogCommand, Data: encodeEntry(1, nil)}},
	}
	if err := leader.AppendEntries("", target, req, &resp); err == nil {
		ack = resp.Success
	}
	return vote, ack
}
