package raftgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

func newStore(t *testing.T, path string, cfg StoreConfig, hooks storeHooks) *Store {
	t.Helper()
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { t.Errorf("store failed: %v", err) }
	}
	s, err := openStore(path, cfg, hooks)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func entries(first, last, term uint64, size int) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		data := make([]byte, size)
		copy(data, fmt.Sprintf("%d/%d", term, i))
		logs = append(logs, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: data, AppendedAt: time.Unix(0, int64(i))})
	}
	return logs
}

// requireLog checks that the log holds exactly the entries, on disk and in memory.
func requireLog(t *testing.T, g *GroupLog, want []*raft.Log) {
	t.Helper()
	first, err := g.FirstIndex()
	require.NoError(t, err)
	last, err := g.LastIndex()
	require.NoError(t, err)
	if len(want) == 0 {
		require.Zero(t, first)
		require.Zero(t, last)
		require.Zero(t, g.Bytes())
		return
	}
	require.Equal(t, want[0].Index, first)
	require.Equal(t, want[len(want)-1].Index, last)
	var got raft.Log
	require.ErrorIs(t, g.GetLog(first-1, &got), raft.ErrLogNotFound)
	require.ErrorIs(t, g.GetLog(last+1, &got), raft.ErrLogNotFound)
	for _, l := range want {
		require.NoError(t, g.GetLog(l.Index, &got))
		require.Equal(t, *l, got)
	}
}

func TestStoreLogs(t *testing.T) {
	for _, cache := range []int64{1, 1 << 20} { // read from disk, read from memory
		t.Run(fmt.Sprintf("cache of %d bytes", cache), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "raft.db")
			s := newStore(t, path, StoreConfig{CacheBytes: cache}, storeHooks{})
			g, other := s.Group(7), s.Group(8)
			require.True(t, g.IsMonotonic())
			requireLog(t, g, nil)
			require.NoError(t, g.StoreLogs(entries(5, 9, 2, 100)))
			require.NoError(t, other.StoreLog(entries(1, 1, 1, 10)[0]))
			requireLog(t, g, entries(5, 9, 2, 100))
			requireLog(t, other, entries(1, 1, 1, 10))

			require.ErrorIs(t, g.StoreLogs(entries(11, 12, 2, 1)), sundog.Invalid, "a gap")
			requireLog(t, g, entries(5, 9, 2, 100))

			// A record at an index cancels those at and above it.
			require.NoError(t, g.StoreLogs(entries(8, 8, 3, 50)))
			want := append(entries(5, 7, 2, 100), entries(8, 8, 3, 50)...)
			requireLog(t, g, want)

			require.NoError(t, g.DeleteRange(7, 8)) // the upper end
			requireLog(t, g, want[:2])
			require.NoError(t, g.StoreLogs(entries(7, 30, 4, 10)))
			require.NoError(t, g.DeleteRange(5, 20)) // the lower end
			requireLog(t, g, entries(21, 30, 4, 10))
			require.NoError(t, g.DeleteRange(1, 5)) // nothing there
			require.NoError(t, s.Close())

			s = newStore(t, path, StoreConfig{CacheBytes: cache}, storeHooks{})
			g = s.Group(7)
			requireLog(t, g, entries(21, 30, 4, 10))
			require.NoError(t, g.DeleteRange(21, 30))
			requireLog(t, g, nil)
			require.NoError(t, g.StoreLogs(entries(100, 101, 5, 10)), "any index may follow an empty log")
			requireLog(t, g, entries(100, 101, 5, 10))
			requireLog(t, s.Group(8), entries(1, 1, 1, 10))
		})
	}
}

// TestSnapshotEntry: the log answers for the index of the newest snapshot.
func TestSnapshotEntry(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), "raft.db"), StoreConfig{}, storeHooks{})
	g := s.Group(1)
	require.NoError(t, g.StoreLogs(entries(1, 5, 2, 10)))
	require.NoError(t, g.cover(5, 2))
	require.NoError(t, g.DeleteRange(1, 5))
	var l raft.Log
	require.NoError(t, g.GetLog(5, &l))
	require.Equal(t, raft.Log{Index: 5, Term: 2, Type: raft.LogNoop}, l)
	require.ErrorIs(t, g.GetLog(4, &l), raft.ErrLogNotFound)
	first, _ := g.FirstIndex()
	require.Zero(t, first)
	require.NoError(t, g.cover(4, 1)) // an older one changes nothing
	require.NoError(t, g.GetLog(5, &l))
	require.ErrorIs(t, g.StoreLogs(entries(7, 8, 2, 1)), sundog.Invalid, "a gap behind the snapshot")
	require.NoError(t, g.StoreLogs(entries(6, 7, 2, 1)))
}

func TestStable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s := newStore(t, path, StoreConfig{}, storeHooks{})
	g := s.Group(0)
	v, err := g.Get([]byte("none"))
	require.NoError(t, err)
	require.Nil(t, v)
	n, err := g.GetUint64([]byte("none"))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, g.SetUint64([]byte("CurrentTerm"), 7))
	require.NoError(t, g.Set([]byte("k"), []byte("v")))
	require.NoError(t, g.SetUint64([]byte("k"), 1))
	before := s.Commits()
	require.NoError(t, g.SetUint64([]byte("CurrentTerm"), 7))
	require.Equal(t, before, s.Commits(), "what is on disk already is not written again")
	require.NoError(t, s.Close())
	require.ErrorIs(t, g.Set([]byte("k"), nil), sundog.Closed)

	g = newStore(t, path, StoreConfig{}, storeHooks{}).Group(0)
	n, err = g.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	_, err = g.GetUint64([]byte("k"))
	require.NoError(t, err)
}

// TestVoteIsOneWrite: a vote's term is never on disk beside an older candidate.
func TestVoteIsOneWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s := newStore(t, path, StoreConfig{}, storeHooks{})
	g := s.Group(3)
	vote := func(term uint64, candidate string) {
		require.NoError(t, g.SetUint64([]byte("LastVoteTerm"), term))
		n, err := g.GetUint64([]byte("LastVoteTerm"))
		require.NoError(t, err)
		require.Equal(t, term, n)
		if candidate != "" {
			require.NoError(t, g.Set([]byte("LastVoteCand"), []byte(candidate)))
		}
	}
	vote(5, "a")
	vote(6, "a")
	before := s.Commits()
	vote(7, "b")
	require.Equal(t, before+1, s.Commits())
	vote(8, "") // the process dies before the candidate
	require.NoError(t, s.Close())
	g = newStore(t, path, StoreConfig{}, storeHooks{}).Group(3)
	n, err := g.GetUint64([]byte("LastVoteTerm"))
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	c, err := g.Get([]byte("LastVoteCand"))
	require.NoError(t, err)
	require.Equal(t, "b", string(c))
}

// TestTruncationIsChunked: a long truncation leaves room for other groups.
func TestTruncationIsChunked(t *testing.T) {
	const n = 4*truncateRecords + 1
	s := newStore(t, filepath.Join(t.TempDir(), "raft.db"), StoreConfig{}, storeHooks{})
	g := s.Group(1)
	require.NoError(t, g.StoreLogs(entries(1, n, 1, 16)))
	before := s.Commits()
	require.NoError(t, g.DeleteRange(1, n-5))
	require.GreaterOrEqual(t, s.Commits()-before, uint64(4))
	requireLog(t, g, entries(n-4, n, 1, 16))

	require.NoError(t, g.StoreLogs(entries(n+1, 2*n, 1, 16)))
	before = s.Commits()
	require.NoError(t, g.DeleteRange(n, 2*n))
	require.GreaterOrEqual(t, s.Commits()-before, uint64(4))
	requireLog(t, g, entries(n-4, n-1, 1, 16))
	require.EqualValues(t, 2, g.trailing(2*g.Bytes()/4+8))
	require.EqualValues(t, 1, g.trailing(1))
}

// TestCrashInTruncation: a truncation that reaches the end of the log leaves, at
// each of its steps, a log that begins where it began.
func TestCrashInTruncation(t *testing.T) {
	for name, lo := range map[string]uint64{"whole log": 101, "from below it": 1, "suffix": 103} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "raft.db")
			var armed atomic.Bool
			var images []string
			s := newStore(t, path, StoreConfig{}, storeHooks{afterCommit: func() {
				if armed.Load() {
					images = append(images, fmt.Sprintf("%s.%d", path, len(images)))
					b, err := os.ReadFile(path)
					if err == nil {
						err = writeFile(images[len(images)-1], b)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}})
			g := s.Group(1)
			require.NoError(t, g.StoreLogs(entries(101, 112, 2, 300<<10))) // behind a snapshot up to 100
			armed.Store(true)
			require.NoError(t, g.DeleteRange(lo, 112))
			armed.Store(false)
			require.NoError(t, s.Close())
			require.GreaterOrEqual(t, len(images), 3)
			left := uint64(112)
			for _, image := range images {
				c := newStore(t, image, StoreConfig{}, storeHooks{}).Group(1)
				first, err := c.FirstIndex()
				require.NoError(t, err)
				last, err := c.LastIndex()
				require.NoError(t, err)
				require.Less(t, last, left)
				left = last
				if first != 0 {
					require.EqualValues(t, 101, first)
				}
			}
			if lo <= 101 {
				require.Zero(t, left)
			} else {
				require.Equal(t, lo-1, left)
			}
		})
	}
}

func TestStoreRefusesToOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	newStore(t, path, StoreConfig{}, storeHooks{})
	_, err := OpenStore(path, StoreConfig{})
	require.ErrorIs(t, err, sundog.Conflict)

	foreign := filepath.Join(dir, "foreign.db")
	require.NoError(t, writeFile(foreign, []byte("not a database, and long enough to be looked at closely....")))
	_, err = OpenStore(foreign, StoreConfig{})
	require.Error(t, err)
}

// TestAcknowledgedAfterSync: no operation is answered before a commit that began
// after it was submitted.
func TestAcknowledgedAfterSync(t *testing.T) {
	var commits int
	s := newStore(t, filepath.Join(t.TempDir(), "raft.db"), StoreConfig{}, storeHooks{afterCommit: func() { commits++ }})
	g := s.Group(1)
	for i := uint64(1); i <= 20; i++ {
		before := s.Commits()
		require.NoError(t, g.StoreLogs(entries(i, i, 1, 10)))
		require.NoError(t, g.SetUint64([]byte("CurrentTerm"), i))
		require.Equal(t, before+2, s.Commits())
	}
}

// TestReaderSeesNoReplacedEntry: who reads while entries are replaced gets the
// old or the new ones, and after the new extent shows never an old one.
func TestReaderSeesNoReplacedEntry(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), "raft.db"), StoreConfig{}, storeHooks{})
	g := s.Group(1)
	require.NoError(t, g.StoreLogs(entries(1, 1, 1, 10)))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Each round appends one more entry than before in a term equal to its last.
			last, _ := g.LastIndex()
			var l raft.Log
			if err := g.GetLog(1, &l); err != nil || l.Term < last {
				t.Errorf("entry 1 of term %d beside a log up to %d: %v", l.Term, last, err)
				return
			}
		}
	}()
	for n := uint64(2); n <= 300; n++ {
		require.NoError(t, g.StoreLogs(entries(1, n, n, 10)))
	}
	close(stop)
	<-done
}

func TestCacheIsBounded(t *testing.T) {
	c := newLogCache(10 * (entryOverhead + 100))
	for i := uint64(1); i <= 100; i++ {
		c.add(GroupID(i%3), entries(i/3+1, i/3+1, 1, 100))
		require.LessOrEqual(t, c.used(), c.limit)
	}
	var l raft.Log
	require.True(t, c.get(1, 34, &l))
	require.False(t, c.get(1, 20, &l))
	c.add(1, entries(20, 21, 2, 100)) // cancels all above
	require.False(t, c.get(1, 34, &l))
	require.True(t, c.get(1, 21, &l))
	c.truncate(1, 21, 21)
	require.False(t, c.get(1, 20, &l))
	c.truncate(1, ^uint64(0), 0)
	require.False(t, c.get(1, 21, &l))
	c.add(5, entries(1, 1, 1, 1<<20)) // larger than all of it
	require.Zero(t, c.used())
}

func writeFile(path string, b []byte) error { return os.WriteFile(path, b, 0o600) }
