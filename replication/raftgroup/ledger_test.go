package raftgroup

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"io"
	"maps"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// ledger is the machine of the tests: it counts how often each command was
// applied and chains a hash over the log, so that two replicas with equal hashes
// at equal index have seen the same commands in the same order.
type ledger struct {
	mu     sync.Mutex // guards what follows
	index  uint64
	chain  uint64
	counts map[string]int
	refuse bool // Apply answers nothing
	// restores counts Restore calls.
	restores int
}

func newLedger() *ledger { return &ledger{counts: make(map[string]int)} }

func (l *ledger) Apply(e Entry) []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse && len(e.Commands) > 0 {
		return nil
	}
	if e.Index <= l.index {
		panic("an index was applied twice")
	}
	l.index = e.Index
	out := make([]any, len(e.Commands))
	for i, c := range e.Commands {
		l.counts[string(c)]++
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], l.chain)
		binary.LittleEndian.PutUint64(b[8:], uint64(e.Clock))
		l.chain = xxhash.Sum64(append(b[:], c...))
		out[i] = l.counts[string(c)]
	}
	return out
}

type ledgerState struct {
	Index, Chain uint64
	Counts       map[string]int
}

func (l *ledger) Snapshot() (Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &ledgerState{l.index, l.chain, maps.Clone(l.counts)}, nil
}

func (s *ledgerState) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(s); err != nil {
		return 0, err
	}
	return b.WriteTo(w)
}

func (s *ledgerState) Release() {}

func (l *ledger) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var s ledgerState
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index, l.chain, l.counts = s.Index, s.Chain, s.Counts
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
	l.restores++
	return nil
}

func (l *ledger) state() (index, chain uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index, l.chain
}

func (l *ledger) count(c string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[c]
}
