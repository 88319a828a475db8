package table

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// register is what the writer has done to a key: odd while a change is under
// way. Changes of a key are numbered; change n puts version n, or deletes.
type register struct {
	begun, ended atomic.Uint64
}

// TestReadersDuringWrites: Gets are linearizable per key while the writer
// replaces, deletes, grows and shrinks. A reader notes which changes had ended
// before its Get and which had begun after it: what it sees must be the effect
// of one between them, and a value that is itself wherever it is seen.
func TestReadersDuringWrites(t *testing.T) {
	const keys, readers = 4000, 3
	tab, _, _ := newTable(t, 1<<30)
	name := make([][]byte, keys)
	for i := range name {
		name[i] = fmt.Appendf(nil, "key:%d", i)
	}
	// The changes of key i: change n >= 1 is a delete when n%4 == 3 and i is odd.
	deletes := func(i int, n uint64) bool { return n == 0 || i%2 == 1 && n%4 == 3 }
	state := make([]register, keys)
	size := func(i int, n uint64) int { return int((uint64(i)*31 + n*97) % 700) }
	var stop atomic.Bool
	var wg sync.WaitGroup
	var hits, misses atomic.Int64
	fail := make(chan string, readers)
	for r := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 1))
			var buf []byte
			for !stop.Load() {
				i := rng.IntN(keys)
				ended := state[i].ended.Load()
				it, ok := tab.Get(name[i], buf[:0])
				begun := state[i].begun.Load()
				if why := judge(name[i], it, ok, ended, begun, func(n uint64) bool { return deletes(i, n) }); why != "" {
					fail <- fmt.Sprintf("key %d: %s (changes %d to %d)", i, why, ended, begun)
					return
				}
				if ok {
					hits.Add(1)
					buf = it.Value
				} else {
					misses.Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 9))
	change := func(i int) {
		n := state[i].begun.Load() + 1
		state[i].begun.Store(n)
		if deletes(i, n) {
			require.True(t, tab.Delete(name[i], n))
		} else {
			v := version(int(n))
			require.NoError(t, tab.Put(name[i], telling(name[i], v, size(i, n)), v, 0, n))
		}
		state[i].ended.Store(n)
	}
	extra := 0
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end) && len(fail) == 0; {
		for range 200 {
			change(rng.IntN(keys))
		}
		// Breathe: other keys come and go, so that groups split and merge.
		if extra < 3000 {
			for range 3000 {
				require.NoError(t, tab.Put(fmt.Appendf(nil, "x%d", extra), make([]byte, 150), version(1), 0, 1))
				extra++
			}
		} else {
			for ; extra > 0; extra-- {
				require.True(t, tab.Delete(fmt.Appendf(nil, "x%d", extra-1), 1))
			}
			for tab.Compact() {
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if len(fail) > 0 {
		t.Fatal(<-fail)
	}
	verify(t, tab)
	t.Logf("%d hits, %d misses, geometry epoch %d, %d locked", hits.Load(), misses.Load(), tab.cur.epoch, tab.Stats().Contended)
	require.Greater(t, hits.Load(), int64(1000))
	require.Greater(t, misses.Load(), int64(100))
	require.Greater(t, tab.cur.epoch, uint64(100), "groups were split and merged")
}

// judge says what is wrong with a Get between which and the writer's changes
// ended..begun lie.
func judge(key []byte, it Item, ok bool, ended, begun uint64, deletes func(uint64) bool) string {
	if !ok {
		for n := ended; n <= begun; n++ {
			if deletes(n) {
				return ""
			}
		}
		return "missing"
	}
	n := uint64(it.Version.Clock)
	switch {
	case !told(key, it):
		return "wrong bytes"
	case n < ended || n > begun:
		return fmt.Sprintf("version %d is not of that time", n)
	case deletes(n):
		return "a version that was never put"
	}
	return ""
}

// TestScanDuringWrites: keys that are there throughout are seen in every scan,
// whatever grows and shrinks meanwhile.
func TestScanDuringWrites(t *testing.T) {
	const fixed = 3000
	tab, _, _ := newTable(t, 1<<30)
	for i := range fixed {
		require.NoError(t, tab.Put(sizedKey(i), telling(sizedKey(i), version(1), i%400), version(1), 0, 1))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	var scans atomic.Int64
	for r := range 2 {
		wg.Go(func() {
			for !stop.Load() {
				seen := map[string]bool{}
				cursor, first := uint64(0), true
				for first || cursor != 0 {
					first = false
					cursor = tab.Scan(cursor, 1+r*50, func(key []byte, it Item) bool {
						if !told(key, it) {
							stop.Store(true)
							t.Errorf("wrong bytes under %q", key)
						}
						seen[string(key)] = true
						return r == 0
					})
				}
				for i := range fixed {
					if !seen[string(sizedKey(i))] {
						stop.Store(true)
						t.Errorf("scan missed %q", sizedKey(i))
						return
					}
				}
				scans.Add(1)
			}
		})
	}
	n := 1
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) && !stop.Load(); n++ {
		for i := range 6000 {
			k := fmt.Appendf(nil, "come%d", i)
			require.NoError(t, tab.Put(k, telling(k, version(n), i%200), version(n), 0, 1))
		}
		for i := range fixed {
			require.NoError(t, tab.Put(sizedKey(i), telling(sizedKey(i), version(n), (i+n)%400), version(n), 0, 1))
		}
		for i := range 6000 {
			require.True(t, tab.Delete(fmt.Appendf(nil, "come%d", i), 1))
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d scans, %d rounds", scans.Load(), n)
	require.Positive(t, scans.Load())
}

// checkCut reads a cut, slowly if asked, and compares it with what the table was.
func checkCut(t *testing.T, c *Cut, want map[string]sundog.Version, slow bool) {
	defer c.Close()
	got := map[string]sundog.Version{}
	for e, ok := c.Next(); ok; e, ok = c.Next() {
		if !told(e.Key, Item{Version: e.Version, Size: len(e.Value), Value: e.Value}) {
			t.Errorf("wrong bytes under %q", e.Key)
		}
		if _, twice := got[string(e.Key)]; twice {
			t.Errorf("%q twice", e.Key)
		}
		got[string(e.Key)] = e.Version
		for n := 0; slow && len(got)%500 == 0 && n < 300; n++ {
			runtime.Gosched()
		}
	}
	if c.Err() != nil {
		t.Error(c.Err())
	}
	if len(got) != len(want) {
		t.Errorf("cut has %d keys, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q: version %v, want %v", k, got[k], v)
			return
		}
	}
}

// TestCutDuringWrites: every cut is the table of its instant, though the writer
// goes on at full speed with growth, replacement and deletion, and what the cuts
// hold stays within their bound.
func TestCutDuringWrites(t *testing.T) {
	const keys = 3000
	tab, arena, _ := newTable(t, 1<<30)
	name := func(i int) []byte { return fmt.Appendf(nil, "k%d", i) }
	current := map[string]sundog.Version{}
	rng := rand.New(rand.NewPCG(4, 4))
	n := 0
	write := func() {
		n++
		k := name(rng.IntN(keys))
		if rng.IntN(5) == 0 {
			_, ok := current[string(k)]
			require.Equal(t, ok, tab.Delete(k, 1))
			delete(current, string(k))
			return
		}
		v := version(n)
		require.NoError(t, tab.Put(k, telling(k, v, rng.IntN(900)), v, 0, 1))
		current[string(k)] = v
	}
	for range 6000 {
		write()
	}
	var wg sync.WaitGroup
	for round := range 12 {
		c := tab.Cut()
		want := make(map[string]sundog.Version, len(current))
		for k, v := range current {
			want[k] = v
		}
		wg.Go(func() { checkCut(t, c, want, round%3 == 0) })
		for range 2500 {
			write()
			tab.mu.Lock()
			for _, c := range tab.cuts {
				require.LessOrEqual(t, len(c.queue), cutQueue+2)
				require.LessOrEqual(t, c.heldSum, int64(cutHeld+1<<20))
			}
			tab.mu.Unlock()
		}
	}
	wg.Wait()
	verify(t, tab)
	tab.Compact()
	require.Empty(t, tab.cuts)
	s := tab.Stats()
	require.Eventually(t, func() bool {
		tab.Compact()
		return arena.Stats().Live == s.ItemBytes+s.IndexBytes
	}, 10*time.Second, time.Millisecond, "nothing is held after the cuts")
}

// TestCutBlocksAtItsBound: a cut that is not read stops the writer at the bound,
// and closing it lets the writer go.
func TestCutBlocksAtItsBound(t *testing.T) {
	tab, _, _ := newTable(t, 1<<30)
	for i := range 20000 {
		require.NoError(t, tab.Put(sizedKey(i), make([]byte, 100), version(1), 0, 1))
	}
	c := tab.Cut()
	_, ok := c.Next()
	require.True(t, ok)
	done := make(chan int)
	go func() {
		i := 0
		for ; i < 20000; i++ {
			if tab.Put(sizedKey(i), make([]byte, 90), version(2), 0, 1) != nil {
				break
			}
		}
		done <- i
	}()
	require.Eventually(t, func() bool {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		return len(c.queue) >= cutQueue
	}, 10*time.Second, time.Millisecond)
	tab.mu.Lock()
	require.LessOrEqual(t, len(c.queue), cutQueue+splitsEach+1)
	tab.mu.Unlock()
	select {
	case <-done:
		t.Fatal("the writer ran past the bound")
	default:
	}
	c.Close()
	require.Equal(t, 20000, <-done)
	_, ok = c.Next()
	require.False(t, ok)
	require.ErrorIs(t, c.Err(), sundog.Closed)
}

// TestUnreadCutNeverBlocks: a cut that nobody has begun to read holds no more
// than what the table was, however much is written, and the writer never waits
// for it; read late, it is still the table of its instant.
func TestUnreadCutNeverBlocks(t *testing.T) {
	const keys = 500
	tab, _, mem := newTable(t, 8<<20)
	write := func(n int) error {
		for i := range keys {
			if err := tab.Put(sizedKey(i), telling(sizedKey(i), version(n), 2000), version(n), 0, 1); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, write(1))
	c := tab.Cut()
	for n := 2; n < 40; n++ { // 40 MB through a budget of 8
		require.NoError(t, write(n))
	}
	require.Equal(t, keys, len(c.held))
	require.LessOrEqual(t, len(c.young), keys)
	// Out of memory with an unread cut is NoSpace, not a wait.
	var err error
	for i := 0; err == nil; i++ {
		err = tab.Put(fmt.Appendf(nil, "more%d", i), make([]byte, 50_000), version(1), 0, 1)
	}
	require.ErrorIs(t, err, sundog.NoSpace)
	seen := 0
	for e, ok := c.Next(); ok; e, ok = c.Next() {
		require.Equal(t, version(1), e.Version)
		require.True(t, told(e.Key, Item{Version: e.Version, Size: len(e.Value), Value: e.Value}))
		seen++
	}
	require.NoError(t, c.Err())
	require.Equal(t, keys, seen)
	require.Empty(t, c.held)
	c.Close()
	verify(t, tab)
	require.LessOrEqual(t, mem.Used(), mem.Limit())
}
