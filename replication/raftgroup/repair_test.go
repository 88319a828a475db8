package raftgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// openAgain opens node 2's store and group without a cluster, after the node was
// stopped, and closes both.
func (h *handLeader) openAgain() error {
	h.t.Helper()
	s, err := OpenStore(filepath.Join(h.n.dir, "raft.db"), StoreConfig{})
	require.NoError(h.t, err)
	h.n.store, h.n.mux = s, h.c.net.add(h.t, 2, MuxConfig{})
	g, err := Open(h.c.config(h.n, 0, newLedger()))
	if err == nil {
		require.NoError(h.t, g.Close())
	}
	require.NoError(h.t, h.n.mux.Close())
	require.NoError(h.t, s.Close())
	return err
}

// TestCrashInInstall: the process dies between the moment that a received
// snapshot is durable and the end of the old log; a restart finishes the
// installation, and the leader's next entries are taken.
func TestCrashInInstall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		last, term uint64 // of the log below the snapshot up to 20 of term 3
		kept       bool
	}{
		{"log ends below the snapshot", 11, 2, false},
		{"log contradicts the snapshot", 30, 2, false},
		{"log contradicts the snapshot in a newer term", 30, 4, false},
		{"log agrees with the snapshot", 30, 3, true},
		{"log ends with the snapshot", 20, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandLeader(t)
			require.True(t, h.add(c.term, 1, 1, 1, entries(2, c.last, c.term, 0)))
			h.receive(20, 3)
			h.c.stop(2)
			h.n = h.c.start(2)
			require.EqualValues(t, 20, h.n.groups[0].Status().Applied)
			first, err := h.n.groups[0].log.FirstIndex()
			require.NoError(t, err)
			last := uint64(20)
			if require.Equal(t, c.kept, first != 0); c.kept {
				last = c.last
			}
			require.Equal(t, last, h.n.groups[0].Status().LastIndex)
			eventually(t, "entries behind the snapshot", func() bool { return h.add(5, 20, 3, 20, entries(21, 22, 5, 0)) })
			require.EqualValues(t, 22, h.n.groups[0].Status().LastIndex)
		})
	}
}

// TestOpenWithGap: a replica that misses entries between snapshot and log does
// not start.
func TestOpenWithGap(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	log := h.n.groups[0].log
	require.NoError(t, log.DeleteRange(1, 1))
	require.NoError(t, log.StoreLogs(entries(501, 503, 2, 1)))
	h.c.stop(2)
	require.ErrorIs(t, h.openAgain(), sundog.Corrupt)
}

// TestLostSnapshots: a replica whose snapshots are lost, when the log is cut up
// to them, does not start and so grants no vote with the log it has left.
func TestLostSnapshots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lose func(h *handLeader, log *GroupLog)
	}{
		{"log empty behind an installation", func(h *handLeader, log *GroupLog) {
			h.receive(20, 3)
			require.NoError(h.t, log.DeleteRange(1, 1))
		}},
		{"log whole behind the snapshot", func(h *handLeader, log *GroupLog) {
			h.receive(20, 3)
			require.NoError(h.t, log.DeleteRange(1, 1))
			require.NoError(h.t, log.StoreLogs(entries(21, 23, 3, 1)))
		}},
		{"no snapshot known", func(h *handLeader, log *GroupLog) { require.NoError(h.t, log.DeleteRange(1, 1)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandLeader(t)
			c.lose(h, h.n.groups[0].log)
			h.c.stop(2)
			folder, away := filepath.Join(h.n.dir, "group-0"), filepath.Join(h.n.dir, "away")
			require.NoError(t, os.Rename(folder, away))
			err := h.openAgain()
			require.ErrorIs(t, err, sundog.Corrupt)
			require.ErrorContains(t, err, "new incarnation")
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.Rename(away, folder))
			if c.name != "no snapshot known" {
				require.NoError(t, h.openAgain(), "with the snapshots put back")
			}
		})
	}
}

// TestOlderSnapshotIsNotEnough: a snapshot below the newest one ever taken, as an
// old copy of the folder holds, is refused as well.
func TestOlderSnapshotIsNotEnough(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	h.receive(20, 3)
	folder := filepath.Join(h.n.dir, "group-0")
	old, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, old, 1)
	kept, err := os.ReadFile(filepath.Join(folder, old[0].Name()))
	require.NoError(t, err)
	h.receive(40, 3)
	h.c.stop(2)
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, writeFile(filepath.Join(folder, old[0].Name()), kept))
	require.ErrorIs(t, h.openAgain(), sundog.Corrupt)
}

// TestLostFolderGrantsNoVote: the schedule that makes a lost snapshot dangerous.
func TestLostFolderGrantsNoVote(t *testing.T) {
	t.Parallel()
	h := newHandLeader(t)
	resp, err := h.install(3, 20)
	require.NoError(t, err)
	require.True(t, resp.Success)
	h.c.stop(2)
	require.NoError(t, os.RemoveAll(filepath.Join(h.n.dir, "group-0")))
	require.ErrorIs(t, h.openAgain(), sundog.Corrupt)
	var vote raft.RequestVoteResponse
	err = h.wire.RequestVote("", toNode2, &raft.RequestVoteRequest{RPCHeader: headerFor(1, 1), Term: 9, LastLogIndex: 1, LastLogTerm: 1}, &vote)
	require.Error(t, err)
	require.False(t, vote.Granted)
}
