package raftgroup

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// fsm is the raft.BatchingFSM over a Machine. raft calls it from one goroutine.
type fsm struct {
	machine Machine
	// failed is told once, when the machine can go on no more.
	failed func(error)

	applied atomic.Uint64 // last index carried out
	config  atomic.Uint64 // index of the last configuration among those

	mu      sync.Mutex // guards failure
	failure error
}

func (f *fsm) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

func (f *fsm) fail(err error) error {
	f.mu.Lock()
	first := f.failure == nil
	if first {
		f.failure = err
	}
	f.mu.Unlock()
	if first {
		f.failed(err)
	}
	return err
}

// Apply is of raft.FSM; raft uses ApplyBatch instead.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch carries out committed entries in order. A response is the
// machine's results, or an error once it has failed: then nothing is applied.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	failure := f.err()
	for i, l := range logs {
		if l.Index <= f.applied.Load() {
			// A raft instance made anew without a snapshot begins at the log's first
			// entry; the machine has these already.
			continue
		}
		if failure == nil && l.Type == raft.LogCommand {
			out[i], failure = f.apply(l)
		}
		if failure != nil {
			out[i] = failure
			continue
		}
		if l.Type == raft.LogConfiguration {
			f.config.Store(l.Index)
		}
		f.applied.Store(l.Index)
	}
	return out
}

func (f *fsm) apply(l *raft.Log) ([]any, error) {
	e, err := decodeEntry(l.Data)
	if err != nil {
		return nil, f.fail(sundog.Errorf(sundog.Corrupt, "entry %d of term %d: %w", l.Index, l.Term, err))
	}
	e.Index, e.Term = l.Index, l.Term
	results := f.machine.Apply(e)
	if len(results) != len(e.Commands) {
		return nil, f.fail(sundog.Errorf(sundog.Internal, "the machine gave up at entry %d: %d results for %d commands", l.Index, len(results), len(e.Commands)))
	}
	return results, nil
}

// A snapshot's body: u8 version 1, u64 applied index, u64 index of the last
// configuration, the machine's bytes.
const (
	bodyVersion = 1
	bodyHeader  = 17
)

// Snapshot is of raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	s, err := f.machine.Snapshot()
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, bodyHeader), bodyVersion)
	head = binary.LittleEndian.AppendUint64(head, f.applied.Load())
	head = binary.LittleEndian.AppendUint64(head, f.config.Load())
	return &fsmSnapshot{s, head}, nil
}

type fsmSnapshot struct {
	snapshot Snapshot
	head     []byte
}

// Persist is of raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	_, err := sink.Write(s.head)
	if err == nil {
		_, err = s.snapshot.WriteTo(sink)
	}
	if err != nil {
		_ = sink.Cancel() // the first error counts
		return err
	}
	return sink.Close()
}

// Release is of raft.FSMSnapshot.
func (s *fsmSnapshot) Release() { s.snapshot.Release() }

// Restore is of raft.FSM. After an error the machine's state is not known, so
// nothing more may be applied to it.
func (f *fsm) Restore(r io.ReadCloser) error {
	if err := f.err(); err != nil {
		return err
	}
	if err := f.restore(r); err != nil {
		return f.fail(sundog.Errorf(sundog.KindOf(err), "snapshot not restored: %w", err))
	}
	return nil
}

func (f *fsm) restore(r io.Reader) error {
	head := make([]byte, bodyHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return noEOF(err)
	}
	if head[0] != bodyVersion {
		return sundog.Errorf(sundog.Corrupt, "snapshot body of version %d", head[0])
	}
	if err := f.machine.Restore(r); err != nil {
		return err
	}
	// The checksum is judged at the end, which the machine need not have read.
	if n, err := io.Copy(io.Discard, r); err != nil {
		return err
	} else if n > 0 {
		return sundog.Errorf(sundog.Corrupt, "%d bytes behind the machine's snapshot", n)
	}
	f.applied.Store(binary.LittleEndian.Uint64(head[1:]))
	f.config.Store(binary.LittleEndian.Uint64(head[9:]))
	return nil
}
