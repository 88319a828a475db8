package raftgroup

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// handLeader is a leader, node 1, that a test plays by hand against node 2's
// replica, which never campaigns.
type handLeader struct {
	t    *testing.T
	c    *cluster
	n    *testNode
	wire *transport
}

const toNode2 = raft.ServerAddress("0000000000000002/1")

func newHandLeader(t *testing.T) *handLeader {
	h := &handLeader{t: t, c: newCluster(t, 3, 1, idle)}
	h.n = h.c.start(2)
	require.NoError(t, h.n.groups[0].Bootstrap(h.c.members()))
	m := h.c.net.add(t, 1, MuxConfig{})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	var err error
	h.wire, err = m.newTransport(0, serverID(1, 1))
	require.NoError(t, err)
	return h
}

// idle are timings under which a replica never campaigns.
func idle(cfg *Config) { cfg.Timings = sundog.Timings{Heartbeat: time.Hour, Lease: time.Hour} }

// add sends entries behind prev; false when they are refused, or while the
// instance is made anew.
func (h *handLeader) add(term, prev, prevTerm, commit uint64, logs []*raft.Log) bool {
	for _, e := range logs {
		e.Data = encodeEntry(1, nil)
	}
	var resp raft.AppendEntriesResponse
	req := &raft.AppendEntriesRequest{
		RPCHeader: headerFor(1, 1), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm,
		Entries: logs, LeaderCommitIndex: commit,
	}
	return h.wire.AppendEntries("", toNode2, req, &resp) == nil && resp.Success
}

// ledgerBody is the body of a snapshot up to last, of a ledger that counted "x".
func ledgerBody(t *testing.T, last uint64) []byte {
	body := bytes.NewBuffer([]byte{bodyVersion})
	body.Write(binary.LittleEndian.AppendUint64(nil, last))
	body.Write(binary.LittleEndian.AppendUint64(nil, 1))
	_, err := (&ledgerState{Index: last, Counts: map[string]int{"x": 1}}).WriteTo(body)
	require.NoError(t, err)
	return body.Bytes()
}

// install sends a snapshot up to last, whose term is that of the leader.
func (h *handLeader) install(term, last uint64) (*raft.InstallSnapshotResponse, error) {
	body := ledgerBody(h.t, last)
	req := &raft.InstallSnapshotRequest{
		RPCHeader: headerFor(1, 1), SnapshotVersion: 1, Term: term, LastLogIndex: last, LastLogTerm: term,
		Configuration: raft.EncodeConfiguration(newConfiguration(h.c.members())), ConfigurationIndex: 1, Size: int64(len(body)),
	}
	var resp raft.InstallSnapshotResponse
	err := h.wire.InstallSnapshot("", toNode2, req, &resp, bytes.NewReader(body))
	return &resp, err
}

// receive puts a snapshot into the replica's store, as an installation does
// first of all.
func (h *handLeader) receive(index, term uint64) {
	sink, err := h.n.groups[0].snaps.Create(1, index, term, newConfiguration(h.c.members()), 1, nil)
	require.NoError(h.t, err)
	_, err = sink.Write(ledgerBody(h.t, index))
	require.NoError(h.t, err)
	require.NoError(h.t, sink.Close())
}

// TestAfterInstall: after a snapshot below the end of its old log a replica takes
// entries behind the snapshot at once, and again when those turn out to diverge
// right behind it.
func TestAfterInstall(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	require.True(t, h.add(2, 1, 1, 1, entries(2, 12, 2, 0)))
	resp, err := h.install(3, 8)
	require.NoError(t, err)
	require.True(t, resp.Success)
	eventually(t, "entries behind the snapshot", func() bool { return h.add(3, 8, 3, 8, entries(9, 11, 3, 0)) })
	require.EqualValues(t, 8, h.n.groups[0].Status().Applied)
	require.Equal(t, 1, h.n.ledgers[0].count("x"))
	require.True(t, h.add(4, 8, 3, 8, entries(9, 9, 4, 0)), "the same place in another term")
	require.True(t, h.add(4, 9, 4, 9, entries(10, 10, 4, 0)))
	eventually(t, "applied", func() bool { return h.n.groups[0].Status().Applied == 9 })
}

// TestInstallAgain: a leader whose answer was lost sends its snapshot again, and
// learns that it is held; nothing is installed twice.
func TestInstallAgain(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	for try := range 3 {
		resp, err := h.install(3, 20)
		require.NoError(t, err, "try %d", try)
		require.True(t, resp.Success)
	}
	require.Equal(t, 1, h.n.ledgers[0].restores)
	eventually(t, "entries behind the snapshot", func() bool { return h.add(3, 20, 3, 22, entries(21, 22, 3, 0)) })
	eventually(t, "applied", func() bool { return h.n.groups[0].Status().Applied == 22 })

	// One below what is applied takes back nothing that was acknowledged.
	resp, err := h.install(3, 21)
	require.NoError(t, err)
	require.True(t, resp.Success)
	require.EqualValues(t, 22, h.n.groups[0].Status().LastIndex)
	require.True(t, h.add(3, 22, 3, 22, entries(23, 23, 3, 0)))
	require.Equal(t, 1, h.n.ledgers[0].restores)

	resp, err = h.install(2, 99) // a leader of an older term
	require.NoError(t, err)
	require.False(t, resp.Success)
	require.EqualValues(t, 3, resp.Term)
	h.n.groups[0].turn.now.Store(turnInstall)
	require.ErrorIs(t, h.n.groups[0].mayCreate(22), sundog.Conflict, "overtaken after it was admitted")
	require.NoError(t, h.n.groups[0].mayCreate(23))
	h.n.groups[0].turn.give()
}

// TestOneSnapshotAtATime: taking a snapshot and installing one exclude each other.
func TestOneSnapshotAtATime(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	g := h.n.groups[0]
	require.True(t, g.turn.take(turnOwn))
	_, err := h.install(3, 20)
	require.ErrorIs(t, err, sundog.Unavailable)
	g.turn.give()
	require.True(t, g.turn.take(turnInstall))
	require.ErrorIs(t, g.takeSnapshot(t.Context()), sundog.Unavailable)
	g.turn.give()
	resp, err := h.install(3, 20)
	require.NoError(t, err)
	require.True(t, resp.Success)
	require.NoError(t, g.Snapshot(t.Context()), "the turn was given back")
}

// TestOlderSnapshotClosesLast: a snapshot that was begun before a newer one and
// ends after it is dropped, whatever its term.
func TestOlderSnapshotClosesLast(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), func(uint64, uint64) error { return nil })
	require.NoError(t, err)
	conf := newConfiguration([]string{serverID(1, 1)})
	create := func(index, term uint64) raft.SnapshotSink {
		k, err := s.Create(1, index, term, conf, 1, nil)
		require.NoError(t, err)
		_, err = k.Write([]byte("body"))
		require.NoError(t, err)
		return k
	}
	own, other := create(100, 2), create(101, 9)
	require.NoError(t, create(500, 3).Close())
	require.ErrorIs(t, own.Close(), sundog.Conflict)
	require.ErrorIs(t, other.Close(), sundog.Conflict)
	metas, err := s.List()
	require.NoError(t, err)
	require.Len(t, metas, 1)
	require.EqualValues(t, 500, metas[0].Index)
	left, err := filepath.Glob(filepath.Join(s.dir, "*"+tempSuffix))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, create(600, 3).Close())
	metas, err = s.List()
	require.NoError(t, err)
	require.Len(t, metas, 1)
}

// TestCommitBeyondLastNewEntry: a request that names a commit index above its own
// last entry (raft reads the one after the other) commits nothing that the
// follower holds from a deposed leader, whichever end lowers it.
func TestCommitBeyondLastNewEntry(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	g := h.n.groups[0]
	require.True(t, h.add(2, 1, 1, 8, entries(2, 12, 2, 0))) // 9 to 12 were never committed
	require.True(t, h.add(3, 8, 2, 11, nil))                 // 9 to 11 of term 3 are, elsewhere
	require.EqualValues(t, 8, g.raft().CommitIndex())
	eventually(t, "applied", func() bool { return g.Status().Applied == 8 })
	require.True(t, h.add(3, 8, 2, 11, entries(9, 10, 3, 0)))
	eventually(t, "applied", func() bool { return g.Status().Applied == 10 })
	require.EqualValues(t, 10, g.Status().Commit)

	// A peer that does not lower it is lowered here.
	b := appendVote(testProtocol, 3, 8, 2)
	b = binary.LittleEndian.AppendUint64(b, 11)
	req, err := decodeAppend(append(b, 0), headerFor(1, 1))
	require.NoError(t, err)
	require.EqualValues(t, 8, req.LeaderCommitIndex)
}
