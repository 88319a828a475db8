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
)

// cached is what a one-sided reader keeps of a key: where its item was.
type cached struct {
	at   address
	size int
}

func whereIs(tab *Table, key []byte) cached {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	p, ok := tab.locate(key, keyHash(key))
	if !ok {
		return cached{}
	}
	b, at := tab.itemOf(p.holder, p.w)
	return cached{at, len(b)}
}

// readCached reads by a cached address, as a one-sided reader does: one read of
// bytes that may have been used again for anything.
func readCached(tab *Table, c cached, key []byte) (Item, outcome) {
	return readItem(tab.arena.bytes(c.at, c.size), tab.incarnation, c.at, key, keyHash(key), nil)
}

// breaksOrder reports what breaks the update order: at any point of an update,
// whoever has seen the new item by the index must not find the old one by a
// cached address afterwards. Updates go from inline to inline, inline to out of
// line, and back.
func breaksOrder(t *testing.T) (report string) {
	tab, _, _ := newTable(t, 1<<30)
	key := []byte("the key")
	h := keyHash(key)
	put := func(n, size int) {
		v := version(n)
		require.NoError(t, tab.Put(key, telling(key, v, size), v, 0, 1))
	}
	put(1, 20)
	for n, size := range []int{20, 100, 1000, 1000, 30, 30000, 7} {
		old, before := whereIs(tab, key), version(n+1)
		tab.step = func(p point) {
			it, out := tab.look(tab.geo.Load(), key, h, nil)
			if out == miss {
				report = fmt.Sprintf("point %d: the key is missing", p)
			}
			if out != hit || it.Version == before {
				return
			}
			if again, out := readCached(tab, old, key); out == hit && again.Version == before {
				report = fmt.Sprintf("point %d: version %v by the index, then %v by the cached address", p, it.Version, again.Version)
			}
		}
		put(n+2, size)
		tab.step = nil
	}
	return report
}

func TestUpdateOrder(t *testing.T) { require.Empty(t, breaksOrder(t)) }

// TestResizeOrder: at every point of splits and merges, a reader by the older
// geometry and one by the newest find every key or know that they must look
// again; neither believes it absent. A key that is not there is never found.
func TestResizeOrder(t *testing.T) {
	tab, _, _ := newTable(t, 1<<30)
	keys := 0
	var older *geometry
	points := map[point]int{}
	tab.step = func(p point) {
		points[p]++
		if p != pointPublished && p != pointMoved {
			return
		}
		for i := range keys {
			for _, geo := range []*geometry{older, tab.geo.Load()} {
				it, out := tab.look(geo, sizedKey(i), keyHash(sizedKey(i)), nil)
				require.NotEqual(t, miss, out, "key %d at point %d", i, p)
				if geo == tab.geo.Load() && p == pointPublished {
					require.Equal(t, hit, out, "key %d at point %d", i, p)
				}
				require.True(t, out != hit || told(sizedKey(i), it))
			}
		}
		_, out := tab.look(tab.geo.Load(), []byte("nobody"), keyHash([]byte("nobody")), nil)
		require.NotEqual(t, hit, out)
	}
	for i := range 600 {
		older = tab.geo.Load()
		require.NoError(t, tab.Put(sizedKey(i), telling(sizedKey(i), version(1), i%300), version(1), 0, 1))
		keys = i + 1
	}
	split := points[pointMoved]
	require.Greater(t, split, 10)
	for i := 599; i >= 0; i-- {
		older = tab.geo.Load()
		keys = i // key i may go at any moment
		require.True(t, tab.Delete(sizedKey(i), 1))
	}
	require.Greater(t, points[pointMoved], split+10)
	verify(t, tab)
}

// acceptsTorn mixes items and reports a mix that readItem accepts.
func acceptsTorn(t *testing.T) (report string) {
	key := []byte("a key of some length")
	const inc, size = 7, 512
	at := makeAddress(1, 4096)
	item := func(n int, valueSize int) []byte {
		b := make([]byte, size)
		c := content{key: key, value: telling(key, version(n), valueSize), keySum: keyHash(key), version: version(n)}
		c.valueSum = keyHash(c.value)
		writeItem(b, inc, at, &c)
		return b
	}
	accepted := func(b []byte, at address, inc uint64) bool {
		it, out := readItem(b, inc, at, key, keyHash(key), nil)
		return out == hit && !told(key, it)
	}
	a, b := item(1, 300), item(2, 300)
	it, out := readItem(a, inc, at, key, keyHash(key), nil)
	require.Equal(t, hit, out)
	require.True(t, told(key, it))
	for cut := 8; cut < itemFixed+len(key)+300; cut += 8 { // words never tear
		for _, pair := range [][2][]byte{{a, b}, {b, a}} {
			mix := append(append([]byte(nil), pair[0][:cut]...), pair[1][cut:]...)
			if accepted(mix, at, inc) {
				report = fmt.Sprintf("a mix of two items at byte %d is accepted", cut)
			}
		}
	}
	for i := range itemFixed + len(key) + 300 {
		flip := append([]byte(nil), a...)
		flip[i] ^= 1 << (i % 8)
		if accepted(flip, at, inc) {
			report = fmt.Sprintf("a flipped bit of byte %d is accepted", i)
		}
	}
	if _, out := readItem(a, inc, at+1, key, keyHash(key), nil); out == hit {
		report = "an item at another address is accepted"
	}
	if _, out := readItem(a, inc+1, at, key, keyHash(key), nil); out == hit {
		report = "an item of another table is accepted"
	}
	return report
}

func TestTornItem(t *testing.T) { require.Empty(t, acceptsTorn(t)) }

// acceptsReused lets readers go on reading by cached addresses, without being
// counted as readers, while the writer uses the same slots again and again. They
// report a value that is not what it says.
func acceptsReused(t *testing.T) (report string, tornSeen int64) {
	// These readers are not counted, so nothing may be unmapped under them: the
	// budget has room for one chunk of each kind, and an anchor keeps the items'.
	tab, _, _ := newTable(t, 2*chunkMin)
	require.NoError(t, tab.Put([]byte("anchor"), make([]byte, 700), version(1), 0, 1))
	const keys = 8
	var stop atomic.Bool
	var torn atomic.Int64
	var where [keys]atomic.Pointer[cached]
	put := func(i, n, size int) {
		key := sizedKey(i)
		require.NoError(t, tab.Put(key, telling(key, version(n), size), version(n), 0, 1))
		c := whereIs(tab, key)
		where[i].Store(&c)
	}
	for i := range keys {
		put(i, 1, 700)
	}
	reports := make(chan string, 2)
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(r)))
			for !stop.Load() {
				i := rng.IntN(keys)
				c := *where[i].Load()
				for range 20 {
					it, out := readCached(tab, c, sizedKey(i))
					switch {
					case out == hit && !told(sizedKey(i), it):
						reports <- fmt.Sprintf("key %d version %v: wrong bytes accepted", i, it.Version)
						stop.Store(true)
						return
					case out == unclear:
						torn.Add(1)
					}
				}
			}
		})
	}
	sizes := []int{700, 690, 100, 120, 40}
	for n, end := 2, time.Now().Add(700*time.Millisecond); !stop.Load() && time.Now().Before(end); n++ {
		put(n%keys, n, sizes[n/keys%len(sizes)])
		if n%64 == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	select {
	case report = <-reports:
	default:
	}
	return report, torn.Load()
}

func TestReusedBytes(t *testing.T) {
	report, torn := acceptsReused(t)
	require.Empty(t, report)
	require.Positive(t, torn, "readers met bytes in change")
	t.Logf("%d reads met bytes in change", torn)
}

// TestQuarantine: a slot is not used again while a reader is inside that may
// know it, and is once the reader has left.
func TestQuarantine(t *testing.T) {
	tab, arena, _ := newTable(t, 1<<30)
	key := []byte("k")
	put := func(n int) { require.NoError(t, tab.Put(key, telling(key, version(n), 500), version(n), 0, 1)) }
	put(1)
	old := whereIs(tab, key)
	inside := arena.readers.enter()
	for n := 2; n < 500; n++ {
		put(n)
		require.NotEqual(t, old, whereIs(tab, key))
	}
	before := append([]byte(nil), arena.bytes(old.at, old.size)...)
	r, ok := parseItem(before)
	require.True(t, ok)
	require.Equal(t, version(1), r.version, "the bytes are still the first item's")
	require.Greater(t, arena.Stats().Quarantined, int64(400*500))
	exit(inside)
	tab.Compact()
	require.Zero(t, arena.Stats().Quarantined)
}
