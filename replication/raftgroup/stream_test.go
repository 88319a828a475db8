package raftgroup

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

func TestInstallSnapshot(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, true)
	body := make([]byte, 3<<20+17)
	for i := range body {
		body[i] = byte(i * 7)
	}
	req := &raft.InstallSnapshotRequest{
		RPCHeader: headerFor(1, 1), SnapshotVersion: 1, Term: 7, LastLogIndex: 40, LastLogTerm: 6,
		Configuration: raft.EncodeConfiguration(newConfiguration([]string{serverID(1, 1), serverID(2, 3)})), ConfigurationIndex: 3, Size: int64(len(body)),
	}
	var refusing atomic.Bool
	var installed []uint64
	p.tb.admit = func(*raft.InstallSnapshotRequest) (admission, error) {
		if refusing.Load() {
			return admission{}, sundog.Errorf(sundog.Conflict, "of another epoch")
		}
		return admission{}, nil
	}
	p.tb.installed = func(last uint64) { installed = append(installed, last) }
	p.serve(t, func(rpc raft.RPC) {
		got := rpc.Command.(*raft.InstallSnapshotRequest)
		b, err := io.ReadAll(rpc.Reader)
		switch {
		case err != nil:
			rpc.Respond(&raft.InstallSnapshotResponse{}, err)
		case !bytes.Equal(b, body):
			rpc.Respond(&raft.InstallSnapshotResponse{}, errors.New("other bytes"))
		default:
			rpc.Respond(&raft.InstallSnapshotResponse{Term: got.Term, Success: true}, nil)
		}
	})
	var resp raft.InstallSnapshotResponse
	require.NoError(t, p.ta.InstallSnapshot("", to2, req, &resp, bytes.NewReader(body)))
	require.True(t, resp.Success)
	require.EqualValues(t, 7, resp.Term)
	require.Equal(t, []uint64{40}, installed)

	require.ErrorIs(t, p.ta.InstallSnapshot("", to2, req, &resp, bytes.NewReader(body[1:])), sundog.Corrupt)
	require.Error(t, p.ta.InstallSnapshot("", "0000000000000002/9", req, &resp, bytes.NewReader(body)))
	refusing.Store(true)
	require.ErrorIs(t, p.ta.InstallSnapshot("", to2, req, &resp, bytes.NewReader(body)), sundog.Conflict)
	require.Len(t, installed, 1)
	refusing.Store(false)
	require.NoError(t, p.ta.InstallSnapshot("", to2, req, &resp, bytes.NewReader(body)))
	eventually(t, "no connection is left", func() bool { return p.net.connections() == 0 })
}

// TestInstallShowsLife: the sender hears of life also while the receiver makes
// its raft instance anew, which may take as long as the installation did.
func TestInstallShowsLife(t *testing.T) {
	p := newMuxPair(t, MuxConfig{}, true)
	gate := make(chan struct{})
	p.tb.installed = func(uint64) { <-gate }
	p.serve(t, func(rpc raft.RPC) {
		_, err := io.ReadAll(rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{Term: 7, Success: true}, err)
	})
	conn, err := p.net.dial(t.Context(), 1, 2, LaneSnapshot)
	require.NoError(t, err)
	defer conn.Close()
	req := &raft.InstallSnapshotRequest{
		RPCHeader: headerFor(1, 1), SnapshotVersion: 1, Term: 7, LastLogIndex: 40, LastLogTerm: 6, Size: 1,
		Configuration: raft.EncodeConfiguration(newConfiguration([]string{serverID(1, 1)})), ConfigurationIndex: 3,
	}
	w := frameWriter{conn: conn, timeout: time.Minute}
	for kind, payload := range [][]byte{kindInstall: encodeInstall(req), kindChunk: {1}, kindEnd: {1, 0, 0, 0, 0, 0, 0, 0}} {
		if payload != nil {
			require.NoError(t, w.write([]*message{newMessage(byte(kind), 9, 3, 1, 0, payload)}))
		}
	}
	r := bufio.NewReader(conn)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for life := 0; ; life++ {
		msg, err := readMessage(r)
		require.NoError(t, err)
		if msg.kind != kindAlive {
			require.EqualValues(t, kindInstall|kindAnswer, msg.kind)
			require.GreaterOrEqual(t, life, 2)
			return
		}
		if life == 1 {
			close(gate)
		}
	}
}
