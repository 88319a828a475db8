package raftgroup

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// groupModel is what one group's writer knows: what it was told is done, and
// what it had asked for when the machine crashed.
type groupModel struct {
	first, last uint64            // acknowledged
	terms       map[uint64]uint64 // index -> term of acknowledged entries
	stable      uint64            // acknowledged term
	// asked is the operation under way, which may be done or not.
	asked modelOp
}

// modelOp is an append of entries lo..hi, a truncation lo..hi, or a term.
type modelOp struct {
	append, truncate, set bool
	lo, hi, term          uint64
}

// crashWorkload drives several groups of a store at once and notes what was
// acknowledged, until it is told that the machine crashed.
type crashWorkload struct {
	store *Store

	mu      sync.Mutex // guards what follows
	crashed bool
	models  []*groupModel
	acks    int
}

// begin notes what is asked; end notes the acknowledgement. Both report false
// once the machine has crashed: what is learnt after that was learnt by nobody.
func (w *crashWorkload) begin(m *groupModel, op modelOp) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.crashed {
		m.asked = op
	}
	return !w.crashed
}

func (w *crashWorkload) end(m *groupModel, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed || err != nil {
		return false
	}
	m.apply()
	w.acks++
	return true
}

func (m *groupModel) apply() {
	op := m.asked
	m.asked = modelOp{}
	switch {
	case op.append:
		for i := op.lo; i <= m.last; i++ {
			delete(m.terms, i)
		}
		for i := op.lo; i <= op.hi; i++ {
			m.terms[i] = op.term
		}
		if m.first == 0 {
			m.first = op.lo
		}
		m.last = op.hi
	case op.truncate:
		for i := op.lo; i <= op.hi; i++ {
			delete(m.terms, i)
		}
		if op.lo <= m.first {
			m.first = op.hi + 1
		} else {
			m.last = op.lo - 1
		}
		if m.first > m.last {
			m.first, m.last = 0, 0
		}
	case op.set:
		m.stable = op.term
	}
}

// write drives one group until the crash.
func (w *crashWorkload) write(id GroupID, m *groupModel, rng *rand.Rand) {
	g := w.store.Group(id)
	term := uint64(1)
	for {
		op := modelOp{append: true, lo: m.last + 1, term: term}
		op.hi = op.lo + rng.Uint64N(4)
		switch dice := rng.IntN(20); {
		case dice == 0 && m.last > m.first+2: // a conflicting suffix, cut by the append itself
			term++
			op.lo, op.term = m.last-1, term
		case dice == 1 && m.last > m.first+2:
			op = modelOp{truncate: true, lo: m.last - 1, hi: m.last}
		case dice == 2 && m.last > m.first+8:
			op = modelOp{truncate: true, lo: m.first, hi: m.last - 4}
		case dice < 5:
			term++
			op = modelOp{set: true, term: term}
		}
		if !w.begin(m, op) {
			return
		}
		var err error
		switch {
		case op.append:
			err = g.StoreLogs(entries(op.lo, op.hi, op.term, 20+rng.IntN(200)))
		case op.truncate:
			err = g.DeleteRange(op.lo, op.hi)
		case op.set:
			err = g.SetUint64([]byte("CurrentTerm"), op.term)
		}
		if !w.end(m, err) {
			return
		}
	}
}

// check compares a store opened after the crash with what was acknowledged. The
// operation under way may have left any of its steps.
func (w *crashWorkload) check(s *Store) (lost []string) {
	complain := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	for i, m := range w.models {
		g := s.Group(GroupID(i))
		first, err := g.FirstIndex()
		if err != nil {
			complain("group %d does not open: %v", i, err)
			continue
		}
		last, _ := g.LastIndex()
		for index, term := range m.terms {
			if op := m.asked; (op.truncate && index >= op.lo && index <= op.hi) || (op.append && index >= op.lo) {
				continue // may be gone or replaced
			}
			var l raft.Log
			if err := g.GetLog(index, &l); err != nil || l.Term != term || !bytes.HasPrefix(l.Data, fmt.Appendf(nil, "%d/%d", term, index)) {
				complain("group %d: entry %d of term %d was acknowledged: found %d..%d, term %d, %v", i, index, term, first, last, l.Term, err)
			}
		}
		for index := first; index <= last && index > 0; index++ { // whole, without gaps
			var l raft.Log
			if err := g.GetLog(index, &l); err != nil {
				complain("group %d: entry %d of %d..%d: %v", i, index, first, last, err)
			}
		}
		if last > m.last && !m.asked.append {
			complain("group %d: entries up to %d, but %d was the last acknowledged", i, last, m.last)
		}
		v, _ := g.GetUint64([]byte("CurrentTerm"))
		if v != m.stable && !(m.asked.set && v == m.asked.term) {
			complain("group %d: term %d was acknowledged: found %d", i, m.stable, v)
		}
	}
	return lost
}

// crashOnce runs the workload on a store and crashes it after a random number of
// syncs: every write after the last completed sync is dropped. It returns what
// was acknowledged and is not there.
func crashOnce(t *testing.T, seed uint64) (lost []string, acks int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	dir := t.TempDir()
	path, image := filepath.Join(dir, "raft.db"), filepath.Join(dir, "image.db")
	crashAt := 5 + rng.IntN(60)
	w := &crashWorkload{}
	syncs, captured := 0, make(chan struct{})
	release := make(chan struct{})
	hooks := storeHooks{
		afterCommit: func() {
			// The disk holds all up to here; nobody was told of this commit yet.
			if syncs++; syncs == crashAt {
				b, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(image, b, 0o600)
				}
				if err != nil {
					t.Error(err)
				}
				close(captured)
			}
		},
		beforeCommit: func() {
			// The next transaction is about to be written: its writes will be lost.
			if syncs == crashAt {
				<-release
			}
		},
	}
	s, err := openStore(path, StoreConfig{CacheBytes: 1 << 16, StallAfter: -1, Fatal: func(error) {}}, hooks)
	require.NoError(t, err)
	w.store = s
	var wg sync.WaitGroup
	for i := range 6 {
		m := &groupModel{terms: make(map[uint64]uint64)}
		w.models = append(w.models, m)
		grng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() { w.write(GroupID(i), m, grng) })
	}
	<-captured
	// Let the acknowledgements of the last commit, and any that come before their
	// own, reach the writers; then the machine is gone.
	for range 1000 {
		w.mu.Lock()
		//lint:ignore SA2001 only to give the writers their turn
		w.mu.Unlock()
		runtime.Gosched()
	}
	w.mu.Lock()
	w.crashed = true
	acks = w.acks
	w.mu.Unlock()
	close(release)
	wg.Wait()
	require.NoError(t, s.Close())

	after, err := openStore(image, StoreConfig{}, storeHooks{})
	require.NoError(t, err, "the image of a completed sync opens")
	defer func() { require.NoError(t, after.Close()) }()
	return w.check(after), acks
}
