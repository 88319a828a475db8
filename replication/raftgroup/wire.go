package raftgroup

import (
	"encoding/binary"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// Payloads of the transport's messages. The raft header's server id and address
// are not sent: they are the connection's node with the frame's incarnation.

func corrupt(what string) error {
	return sundog.Errorf(sundog.Corrupt, "raft %s does not decode", what)
}

// provenCommit is the commit index that an AppendEntries request may tell: no
// higher than the last entry that its receiver will share with the leader for
// sure. raft reads the end of its log first and the commit index later, and lets a
// follower commit up to the end of its own log: entries of a deposed leader behind
// the request's last one would count as committed. Telling a lower index than is
// known is always legal, a leader that has not heard yet does it; what is above
// follows with the entries it belongs to.
func provenCommit(a *raft.AppendEntriesRequest) uint64 {
	last := a.PrevLogEntry + uint64(len(a.Entries))
	if last < a.PrevLogEntry {
		return 0 // no log is that long
	}
	return min(a.LeaderCommitIndex, last)
}

// encodeAppend lays out an AppendEntries request; the entries' Data is not copied
// unless small. Its commit index is what the request proves.
//
//	u8 protocol, u64 term, u64 previous index, u64 previous term, u64 commit,
//	uvarint number of entries; where there are any: u64 index of the first, and
//	for each uvarint length of its record, record
func encodeAppend(a *raft.AppendEntriesRequest) ([][]byte, error) {
	b := make([]byte, 0, 256)
	b = append(b, byte(a.ProtocolVersion))
	for _, v := range []uint64{a.Term, a.PrevLogEntry, a.PrevLogTerm, provenCommit(a)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(a.Entries)))
	var parts [][]byte
	var head []byte
	for i, e := range a.Entries {
		if i == 0 {
			b = binary.LittleEndian.AppendUint64(b, e.Index)
		} else if e.Index != a.Entries[0].Index+uint64(i) {
			return nil, sundog.Errorf(sundog.Internal, "raft entries with a gap at %d", e.Index)
		}
		head = appendRecordHead(head[:0], e)
		b = binary.AppendUvarint(b, uint64(len(head)+len(e.Data)))
		b = append(b, head...)
		if len(e.Data) < smallPart {
			b = append(b, e.Data...)
			continue
		}
		parts = append(parts, b, e.Data)
		b = make([]byte, 0, 256)
	}
	return append(parts, b), nil
}

// decodeAppend reads what encodeAppend wrote, or an encoder that did not lower the
// commit index; entries' Data aliases b.
func decodeAppend(b []byte, header raft.RPCHeader) (*raft.AppendEntriesRequest, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersion(d.u8())
	a := &raft.AppendEntriesRequest{RPCHeader: header}
	a.Term, a.PrevLogEntry, a.PrevLogTerm, a.LeaderCommitIndex = d.u64(), d.u64(), d.u64(), d.u64()
	n := d.uvarint()
	if n > uint64(len(d.b)) { // each entry takes more than a byte
		d.fail()
	}
	if n > 0 && !d.bad {
		first := d.u64()
		logs := make([]raft.Log, n)
		a.Entries = make([]*raft.Log, n)
		for i := range logs {
			record := d.bytes(d.uvarint())
			if d.bad || first == 0 || first+uint64(i) < first {
				return nil, corrupt("AppendEntries request")
			}
			if err := decodeRecord(record, first+uint64(i), &logs[i]); err != nil {
				return nil, err
			}
			a.Entries[i] = &logs[i]
		}
	}
	if d.bad || len(d.b) > 0 {
		return nil, corrupt("AppendEntries request")
	}
	a.LeaderCommitIndex = provenCommit(a)
	return a, nil
}

// isHeartbeat tells raft's own heartbeats from other AppendEntries: they carry
// nothing but the term.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.Term != 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// encodeVote lays out a RequestVote request:
// u8 protocol, u64 term, u64 last index, u64 last term, u8 1 for a transfer.
func encodeVote(v *raft.RequestVoteRequest) []byte {
	b := appendVote(byte(v.ProtocolVersion), v.Term, v.LastLogIndex, v.LastLogTerm)
	return append(b, boolByte(v.LeadershipTransfer))
}

func appendVote(protocol byte, term, lastIndex, lastTerm uint64) []byte {
	b := append(make([]byte, 0, 32), protocol)
	b = binary.LittleEndian.AppendUint64(b, term)
	b = binary.LittleEndian.AppendUint64(b, lastIndex)
	return binary.LittleEndian.AppendUint64(b, lastTerm)
}

func decodeVote(b []byte, header raft.RPCHeader) (*raft.RequestVoteRequest, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersion(d.u8())
	v := &raft.RequestVoteRequest{RPCHeader: header}
	v.Term, v.LastLogIndex, v.LastLogTerm = d.u64(), d.u64(), d.u64()
	v.LeadershipTransfer = d.u8() == 1
	if d.bad || len(d.b) > 0 {
		return nil, corrupt("RequestVote request")
	}
	return v, nil
}

// encodePreVote lays out a RequestPreVote request as encodeVote, less its last byte.
func encodePreVote(v *raft.RequestPreVoteRequest) []byte {
	return appendVote(byte(v.ProtocolVersion), v.Term, v.LastLogIndex, v.LastLogTerm)
}

func decodePreVote(b []byte, header raft.RPCHeader) (*raft.RequestPreVoteRequest, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersion(d.u8())
	v := &raft.RequestPreVoteRequest{RPCHeader: header}
	v.Term, v.LastLogIndex, v.LastLogTerm = d.u64(), d.u64(), d.u64()
	if d.bad || len(d.b) > 0 {
		return nil, corrupt("RequestPreVote request")
	}
	return v, nil
}

func decodeTimeoutNow(b []byte, header raft.RPCHeader) (*raft.TimeoutNowRequest, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersion(d.u8())
	if d.bad || len(d.b) > 0 {
		return nil, corrupt("TimeoutNow request")
	}
	return &raft.TimeoutNowRequest{RPCHeader: header}, nil
}

// encodeInstall lays out an InstallSnapshot request:
// u8 protocol, u8 snapshot version, u64 term, u64 last index, u64 last term,
// u64 configuration index, u64 size, configuration to the end.
func encodeInstall(r *raft.InstallSnapshotRequest) []byte {
	b := []byte{byte(r.ProtocolVersion), byte(r.SnapshotVersion)}
	for _, v := range []uint64{r.Term, r.LastLogIndex, r.LastLogTerm, r.ConfigurationIndex, uint64(r.Size)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, r.Configuration...)
}

func decodeInstall(b []byte, header raft.RPCHeader) (*raft.InstallSnapshotRequest, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersion(d.u8())
	r := &raft.InstallSnapshotRequest{RPCHeader: header}
	r.SnapshotVersion = raft.SnapshotVersion(d.u8())
	r.Term, r.LastLogIndex, r.LastLogTerm, r.ConfigurationIndex = d.u64(), d.u64(), d.u64(), d.u64()
	r.Size = int64(d.u64())
	r.Configuration = d.b
	// raft panics on a configuration that does not decode.
	if d.bad || r.Size < 0 || r.SnapshotVersion != 1 || checkConfiguration(r.Configuration) != nil {
		return nil, corrupt("InstallSnapshot request")
	}
	return r, nil
}

// Answers: AppendEntries u64 term, u64 last log, u8 bits (1 success, 2 retry at
// once); votes and installations u64 term, u8 1 for granted or success;
// TimeoutNow nothing.
func encodeAnswer(resp any) ([]byte, error) {
	pair := func(term uint64, ok bool) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, term), boolByte(ok))
	}
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		b := binary.LittleEndian.AppendUint64(make([]byte, 0, 17), r.Term)
		b = binary.LittleEndian.AppendUint64(b, r.LastLog)
		return append(b, boolByte(r.Success)|boolByte(r.NoRetryBackoff)<<1), nil
	case *raft.RequestVoteResponse:
		return pair(r.Term, r.Granted), nil
	case *raft.RequestPreVoteResponse:
		return pair(r.Term, r.Granted), nil
	case *raft.InstallSnapshotResponse:
		return pair(r.Term, r.Success), nil
	case *raft.TimeoutNowResponse:
		return nil, nil
	}
	return nil, sundog.Errorf(sundog.Internal, "raft answered %T", resp)
}

// decodeAnswer reads the answer to a request of the kind, into a new value of
// raft's type.
func decodeAnswer(kind byte, b []byte, header raft.RPCHeader) (any, error) {
	d := decoder{b: b}
	header.ProtocolVersion = raft.ProtocolVersionMax
	var out any
	switch kind {
	case kindAppend:
		r := &raft.AppendEntriesResponse{RPCHeader: header, Term: d.u64(), LastLog: d.u64()}
		bits := d.u8()
		r.Success, r.NoRetryBackoff = bits&1 != 0, bits&2 != 0
		out = r
	case kindVote:
		out = &raft.RequestVoteResponse{RPCHeader: header, Term: d.u64(), Granted: d.u8() == 1}
	case kindPreVote:
		out = &raft.RequestPreVoteResponse{RPCHeader: header, Term: d.u64(), Granted: d.u8() == 1}
	case kindInstall:
		out = &raft.InstallSnapshotResponse{RPCHeader: header, Term: d.u64(), Success: d.u8() == 1}
	case kindTimeoutNow:
		out = &raft.TimeoutNowResponse{RPCHeader: header}
	default:
		d.fail()
	}
	if d.bad || len(d.b) > 0 {
		return nil, corrupt("answer")
	}
	return out, nil
}

// encodeRefusal lays out an answer that is an error: u8 kind, message.
func encodeRefusal(err error) []byte {
	msg := sundog.AsError(err).Msg
	if len(msg) > 1024 {
		msg = msg[:1024]
	}
	return append([]byte{byte(sundog.KindOf(err))}, msg...)
}

// decodeRefusal reads what encodeRefusal wrote.
func decodeRefusal(b []byte) error {
	if len(b) == 0 {
		return corrupt("refusal")
	}
	return sundog.Errorf(sundog.Kind(b[0]), "refused by the peer: %s", b[1:])
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}
