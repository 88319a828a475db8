package raftgroup

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	sundog "github.com/sundog-kv/sundog"
)

// TestAfterInstall plays a leader by hand against one replica: after a snapshot
// below the end of its old log it takes entries behind the snapshot at once, and
// again when those turn out to diverge right behind it.
func TestAfterInstall(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1, func(cfg *Config) { cfg.Timings = sundog.Timings{Heartbeat: time.Hour, Lease: time.Hour} })
	n := c.start(2)
	require.NoError(t, n.groups[0].Bootstrap(c.members()))
	l := c.net.add(t, 1, MuxConfig{})
	defer l.Close()
	leader, err := l.newTransport(0, serverID(1, 1))
	require.NoError(t, err)
	target := raft.ServerAddress(serverID(2, 1))
	add := func(term, prev, prevTerm uint64, logs []*raft.Log) bool {
		for _, e := range logs {
			e.Data = encodeEntry(1, nil)
		}
		var resp raft.AppendEntriesResponse
		req := &raft.AppendEntriesRequest{
			RPCHeader: headerFor(1, 1), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm,
			Entries: logs, LeaderCommitIndex: prev,
		}
		if err := leader.AppendEntries("", target, req, &resp); err != nil {
			return false // while the instance is made anew
		}
		return resp.Success
	}
	require.True(t, add(2, 1, 1, entries(2, 12, 2, 0)))

	var body bytes.Buffer
	body.WriteByte(bodyVersion)
	body.Write(binary.LittleEndian.AppendUint64(nil, 8))
	body.Write(binary.LittleEndian.AppendUint64(nil, 1))
	state := ledgerState{Index: 8, Counts: map[string]int{"x": 1}}
	_, err = state.WriteTo(&body)
	require.NoError(t, err)
	req := &raft.InstallSnapshotRequest{
		RPCHeader: headerFor(1, 1), SnapshotVersion: 1, Term: 3, LastLogIndex: 8, LastLogTerm: 3,
		Configuration: raft.EncodeConfiguration(newConfiguration(c.members())), ConfigurationIndex: 1, Size: int64(body.Len()),
	}
	var resp raft.InstallSnapshotResponse
	require.NoError(t, leader.InstallSnapshot("", target, req, &resp, bytes.NewReader(body.Bytes())))
	require.True(t, resp.Success)

	eventually(t, "entries behind the snapshot", func() bool { return add(3, 8, 3, entries(9, 11, 3, 0)) })
	require.EqualValues(t, 8, n.groups[0].Status().Applied)
	require.Equal(t, 1, n.ledgers[0].count("x"))
	require.True(t, add(4, 8, 3, entries(9, 9, 4, 0)), "the same place in another term")
	require.True(t, add(4, 9, 4, entries(10, 10, 4, 0)))
	eventually(t, "applied", func() bool { return n.groups[0].Status().Applied == 9 })
}
