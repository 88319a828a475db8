package strong

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// smallReplica holds a little of everything.
func smallReplica(t testing.TB) *replica {
	r := newReplica(t, testArenas()).withPools(5, 1, 2, 3)
	r.do(t, 1000, put(1, "a", "one"), ttl(put(1, "b", ""), time.Minute), incr(2, "n", -4), put(2, "gone", "x"), del(2, "gone"))
	return r
}

func TestSnapshotRestores(t *testing.T) {
	r := smallReplica(t)
	saved := r.saved(t)
	c := newReplica(t, testArenas()).withPools(9, 8)
	c.one(t, 5000, ttl(put(8, "z", "old"), time.Second))
	old := c.state.pools[8]
	require.NoError(t, c.Restore(iotest.OneByteReader(bytes.NewReader(saved))))
	require.Equal(t, r.contents(), c.contents())
	require.Zero(t, old.refs.Load(), "the old table was closed")
	require.EqualValues(t, 61_000, c.due.Load(), "deadlines are queued again")
	require.Equal(t, *r.state.pools[1].spec.Load(), *c.state.pools[1].spec.Load())
	require.Equal(t, r.state.index, c.state.index)
	require.Equal(t, saved[:headerSize], c.saved(t)[:headerSize])
	c.checkAccounts(t)
	require.Equal(t, r.sum(t, 1), c.sum(t, 1))

	empty := newReplica(t, testArenas())
	require.NoError(t, c.Restore(bytes.NewReader(empty.saved(t))))
	require.Empty(t, c.state.pools)
}

func TestSnapshotOfManyBlocks(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(5, 1)
	for i := range 300 {
		r.one(t, 1000, put(1, fmt.Sprint("key ", i), strings.Repeat("v", i*10)))
	}
	r.one(t, 1000, put(1, strings.Repeat("k", sundog.MaxKey), strings.Repeat("v", sundog.MaxValue)))
	c := newReplica(t, testArenas())
	require.NoError(t, c.Restore(bytes.NewReader(r.saved(t))))
	require.Equal(t, r.contents(), c.contents())
}

// A snapshot is damaged at every byte, cut at every length and lengthened: the
// replica says Corrupt, shows nothing and applies nothing, and a good one heals it.
func TestDamagedSnapshotsAreRefused(t *testing.T) {
	saved := smallReplica(t).saved(t)
	bad := map[string][]byte{"a byte more": append(bytes.Clone(saved), 0), "twice": append(bytes.Clone(saved), saved...)}
	for i := range saved {
		bad[fmt.Sprint("cut at ", i)] = saved[:i]
		b := bytes.Clone(saved)
		b[i] ^= 1 << (i % 8)
		bad[fmt.Sprint("damaged at ", i)] = b
	}
	arenas := testArenas()
	for name, b := range bad {
		r := newReplica(t, arenas).withPools(9, 8)
		r.one(t, 1, put(8, "z", "old"))
		require.ErrorIs(t, r.Restore(bytes.NewReader(b)), sundog.Corrupt, name)
		require.Nil(t, r.guard.current.Load(), name)
		require.Empty(t, r.state.pools, name)
		require.Nil(t, r.apply(2, appendOps(nil, []rpc.Op{put(8, "z", "new")})), name)
		_, err := r.Snapshot()
		require.ErrorIs(t, err, sundog.Corrupt, name)
		require.NoError(t, r.Restore(bytes.NewReader(saved)), name)
		require.NotNil(t, r.guard.current.Load(), name)
		require.Nil(t, r.one(t, 3, put(1, "a", "again")).Err, name)
	}
}

// Blocks whose own sums are right but that do not make a snapshot.
func TestSnapshotsThatLie(t *testing.T) {
	header := func(pools uint32) []byte {
		s := newState()
		s.highest = sundog.Version{Clock: 50}
		b := s.header(3)
		binary.LittleEndian.PutUint32(b[len(b)-4:], pools)
		return b
	}
	pool := func(id sundog.PoolID) block { return block{blockPool, appendPoolSpec(nil, poolSpec{id: id})} }
	item := func(key string, clock sundog.Clock, deadline int64) block {
		return block{blockItems, appendItem(nil, []byte(key), []byte("v"), sundog.Version{Clock: clock}, deadline)}
	}
	end := func(items, size uint64) block {
		return block{blockEnd, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, items), size)}
	}
	elsewhere := newState().header(4)
	later := header(0)
	later[len(snapMagic)]++
	for name, blocks := range map[string][]block{
		"no header":             {end(0, 0)},
		"another partition":     {{blockHeader, elsewhere}, end(0, 0)},
		"a later format":        {{blockHeader, later}, end(0, 0)},
		"two headers":           {{blockHeader, header(0)}, {blockHeader, header(0)}, end(0, 0)},
		"an unknown block":      {{blockHeader, header(0)}, {9, nil}, end(0, 0)},
		"items without a pool":  {{blockHeader, header(0)}, item("k", 1, 0), end(1, 2)},
		"pools out of order":    {{blockHeader, header(2)}, pool(2), pool(1), end(0, 0)},
		"a pool twice":          {{blockHeader, header(2)}, pool(1), pool(1), end(0, 0)},
		"a pool missing":        {{blockHeader, header(2)}, pool(1), end(0, 0)},
		"pool zero":             {{blockHeader, header(1)}, pool(0), end(0, 0)},
		"a key twice":           {{blockHeader, header(1)}, pool(1), item("k", 1, 0), item("k", 2, 0), end(2, 4)},
		"an empty key":          {{blockHeader, header(1)}, pool(1), item("", 1, 0), end(1, 1)},
		"above highest version": {{blockHeader, header(1)}, pool(1), item("k", 51, 0), end(1, 2)},
		"before all time":       {{blockHeader, header(1)}, pool(1), item("k", 1, -5), end(1, 2)},
		"no items in a block":   {{blockHeader, header(1)}, pool(1), {blockItems, nil}, end(0, 0)},
		"an item cut off":       {{blockHeader, header(1)}, pool(1), {blockItems, make([]byte, itemHead-1)}, end(0, 0)},
		"an item too long":      {{blockHeader, header(1)}, pool(1), {blockItems, bytes.Repeat([]byte{255}, itemHead)}, end(0, 0)},
		"an item missing":       {{blockHeader, header(1)}, pool(1), item("k", 1, 0), end(2, 2)},
		"bytes missing":         {{blockHeader, header(1)}, pool(1), item("k", 1, 0), end(1, 3)},
		"a short end":           {{blockHeader, header(1)}, pool(1), {blockEnd, make([]byte, 8)}},
	} {
		r := newReplica(t, testArenas())
		require.ErrorIs(t, r.Restore(bytes.NewReader(stream(blocks...))), sundog.Corrupt, name)
		require.Empty(t, r.state.pools, name)
	}
	r := newReplica(t, testArenas())
	require.NoError(t, r.Restore(bytes.NewReader(stream(block{blockHeader, header(1)}, pool(1), item("k", 50, 7), end(1, 2)))))
}

type block struct {
	kind blockType
	body []byte
}

// stream writes blocks with right sums.
func stream(blocks ...block) []byte {
	var out bytes.Buffer
	w := newBlockWriter(&out)
	for _, b := range blocks {
		w.block(b.kind, b.body)
	}
	w.w.Flush()
	return out.Bytes()
}

func TestRestorePassesTheReadersError(t *testing.T) {
	r := smallReplica(t)
	broken := errors.New("the disk is gone")
	err := r.Restore(io.MultiReader(bytes.NewReader(r.saved(t)[:100]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.NotNil(t, r.stopped.Load())
}

// What Apply does after the cut is not in the snapshot; a drop of the pool does
// not disturb it, a restore ends it.
func TestSnapshotBesideApply(t *testing.T) {
	r := smallReplica(t)
	before := r.contents()
	s, err := r.Snapshot()
	require.NoError(t, err)
	r.do(t, 2000, put(1, "a", "two"), put(1, "new", ""), del(1, "b"))
	dropped := r.state.pools[2]
	r.apply(2000, poolsCommand(20, 1))
	require.EqualValues(t, 1, dropped.refs.Load(), "kept for the cut")
	saved := bytesOf(t, s)
	s.Release()
	s.Release()
	require.Zero(t, dropped.refs.Load())
	c := newReplica(t, testArenas())
	require.NoError(t, c.Restore(bytes.NewReader(saved)))
	require.Equal(t, before, c.contents())

	s, err = r.Snapshot()
	require.NoError(t, err)
	require.NoError(t, r.Restore(bytes.NewReader(saved)))
	_, err = s.WriteTo(io.Discard)
	require.ErrorIs(t, err, sundog.Closed)
	s.Release()
}

func TestSnapshotWriteError(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(5, 1)
	for i := range 100 {
		r.one(t, 1, put(1, fmt.Sprint(i), strings.Repeat("v", 10_000)))
	}
	s, err := r.Snapshot()
	require.NoError(t, err)
	defer s.Release()
	_, err = s.WriteTo(&fullDisk{left: 200_000})
	require.ErrorIs(t, err, errFull)
}

var errFull = errors.New("disk full")

type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// A snapshot that does not fit the memory is refused whole.
func TestRestoreWithoutMemory(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(5, 1)
	for i := range 64 {
		r.one(t, 1, put(1, fmt.Sprint(i), strings.Repeat("v", 1<<20)))
	}
	small := newArenas(16 << 20)
	c := newReplica(t, small)
	require.ErrorIs(t, c.Restore(bytes.NewReader(r.saved(t))), sundog.NoSpace)
	require.ErrorIs(t, c.stopped.Load(), sundog.NoSpace)
	require.Empty(t, c.state.pools)
	require.Zero(t, small.Memory().Used())
}

// Apply that finds no memory stops the replica with the reason, and whole ops.
func TestApplyWithoutMemoryStops(t *testing.T) {
	r := newReplica(t, newArenas(16<<20)).withPools(5, 1)
	var results []any
	n := 0
	for ; n < 100; n++ {
		results = r.apply(1, appendOps(nil, []rpc.Op{put(1, fmt.Sprint(n), strings.Repeat("v", 1<<20))}))
		if results == nil {
			break
		}
	}
	require.Nil(t, results, "16 MiB do not hold %d MiB", n)
	require.Greater(t, n, 4)
	require.ErrorIs(t, r.stopped.Load(), sundog.NoSpace)
	require.ErrorContains(t, r.stopped.Load(), "--memory")
	require.Nil(t, r.guard.current.Load())
}
