package raftgroup

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func FuzzRecord(f *testing.F) {
	for _, l := range entries(1, 2, 3, 10) {
		f.Add(sealRecord(l))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var l raft.Log
		_ = openRecord(b, 7, &l)
		if decodeRecord(b, 7, &l) == nil {
			var again raft.Log
			require.NoError(t, openRecord(sealRecord(&l), 7, &again))
			require.Equal(t, l.Data, again.Data)
			require.Equal(t, l.Term, again.Term)
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add(encodeEntry(5, nil))
	f.Add(encodeEntry(5, [][]byte{[]byte("a"), {}, []byte("ccc")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err == nil {
			again, err := decodeEntry(encodeEntry(e.Clock, e.Commands))
			require.NoError(t, err)
			require.Equal(t, e, again)
		}
	})
}

func FuzzFrames(f *testing.F) {
	write := func(msgs ...*message) []byte {
		var b bytes.Buffer
		w := frameWriter{conn: bufferConn{&b}, timeout: time.Second}
		require.NoError(f, w.write(msgs))
		return b.Bytes()
	}
	parts, err := encodeAppend(&raft.AppendEntriesRequest{Term: 3, Entries: entries(4, 6, 2, 5000)})
	require.NoError(f, err)
	f.Add(write(newMessage(kindAppend, 1, 2, 3, 4, parts...)))
	f.Add(write(newMessage(kindVote, 1, 2, 3, 4, encodeVote(&raft.RequestVoteRequest{Term: 5})), newMessage(kindError, 0, 0, 0, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			msg, err := readMessage(r)
			if err != nil {
				return
			}
			decodeAll(&msg)
		}
	})
}

// FuzzPayloads feeds payloads past the checksum of their frame.
func FuzzPayloads(f *testing.F) {
	parts, _ := encodeAppend(&raft.AppendEntriesRequest{Term: 3, Entries: entries(4, 6, 2, 50)})
	f.Add(byte(kindAppend), bytes.Join(parts, nil))
	f.Add(byte(kindVote), encodeVote(&raft.RequestVoteRequest{Term: 5}))
	f.Add(byte(kindPreVote), encodePreVote(&raft.RequestPreVoteRequest{Term: 5}))
	f.Add(byte(kindInstall), encodeInstall(&raft.InstallSnapshotRequest{SnapshotVersion: 1, Configuration: raft.EncodeConfiguration(newConfiguration([]string{"a"}))}))
	f.Add(byte(kindError), encodeRefusal(corrupt("x")))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		decodeAll(&received{kind: kind, payload: b})
	})
}

func decodeAll(msg *received) {
	_, _ = decodeRequest(msg, raft.RPCHeader{})
	_, _ = decodeInstall(msg.payload, raft.RPCHeader{})
	_, _ = decodeAnswer(msg.kind&^kindAnswer, msg.payload, raft.RPCHeader{})
	_ = decodeRefusal(msg.payload)
}

func FuzzSnapshotHeader(f *testing.F) {
	meta := &raft.SnapshotMeta{Index: 5, Term: 2, ConfigurationIndex: 1, Size: 99}
	f.Add(snapshotHeader(meta, raft.EncodeConfiguration(newConfiguration([]string{"a", "b"})), 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = readSnapshotHeader(bytes.NewReader(b))
	})
}

// TestMessagesOfAnySize: what is written is what is read, whatever the sizes of
// messages and of their parts.
func TestMessagesOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 31, 100, smallPart - 1, smallPart, smallPart + 1, 70_000, maxPayload - 1, maxPayload, maxPayload + 1}), 0, 6)
		var b bytes.Buffer
		w := frameWriter{conn: bufferConn{&b}, timeout: time.Second}
		var want [][]byte
		for range rapid.IntRange(1, 3).Draw(t, "writes") {
			var msgs []*message
			for range rapid.IntRange(1, 4).Draw(t, "messages") {
				var parts [][]byte
				for _, n := range sizes.Draw(t, "parts") {
					parts = append(parts, bytes.Repeat([]byte{byte(n + len(want))}, n))
				}
				want = append(want, bytes.Join(parts, nil))
				msgs = append(msgs, newMessage(kindAppend, 7, 8, 9, uint64(len(want)), parts...))
			}
			require.NoError(t, w.write(msgs))
		}
		for i, payload := range want {
			msg, err := readMessage(&b)
			require.NoError(t, err)
			require.EqualValues(t, i+1, msg.id)
			require.Equal(t, GroupID(7), msg.group)
			require.True(t, bytes.Equal(payload, msg.payload))
		}
		require.Zero(t, b.Len())
	})
}
