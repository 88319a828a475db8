package strong

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// Whatever bytes a command has: decoding is bounded and never panics, what it
// reads it also writes, and Apply either executes the command or stops.
func FuzzCommand(f *testing.F) {
	for _, b := range commandSeeds() {
		f.Add(b)
	}
	arenas := testArenas()
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCommand(b, nil)
		r := newReplica(t, arenas).withPools(1, 7)
		results := r.apply(5, b)
		if err != nil {
			require.ErrorIs(t, err, sundog.Corrupt)
			require.Nil(t, results)
			return
		}
		require.Len(t, results, 1)
		r.checkAccounts(t)
		switch c.kind {
		case kindOps:
			require.Len(t, results[0], len(c.ops))
			again, err := decodeCommand(appendOps(nil, c.ops), nil)
			require.NoError(t, err)
			require.Equal(t, c, again)
		case kindPools:
			again, err := decodeCommand(appendPools(nil, c.set), nil)
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	})
}

func commandSeeds() [][]byte {
	return [][]byte{
		{},
		{77},
		appendTick(nil),
		appendCheck(nil, 99, 7),
		appendPools(nil, poolSet{catalog: 9, pools: []poolSpec{{id: 7, quota: 1 << 20, maxValue: 100}, {id: 8}}}),
		appendOps(nil, []rpc.Op{ttl(put(7, "k", "v"), time.Second), ifAbsent(incr(7, "n", -1)), ifVersion(del(7, "k"), sundog.Version{Clock: 3})}),
		appendOps(nil, []rpc.Op{put(7, "", ""), put(0, "k", "v")}),
	}
}

// Raw bytes as a snapshot.
func FuzzRestore(f *testing.F) {
	f.Add([]byte{})
	f.Add(smallReplica(f).saved(f))
	f.Add(stream(block{blockHeader, newState().header(3)}, block{blockEnd, make([]byte, endSize)}))
	arenas := testArenas()
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newReplica(t, arenas)
		restoreOrRefuse(t, r, b)
	})
}

// Blocks with right sums, so that what lies behind them is reached: each is a
// type byte, a 16-bit length and a body.
func FuzzRestoreBlocks(f *testing.F) {
	saved := smallReplica(f).saved(f)
	var packed []byte
	for len(saved) > 0 {
		size := int(binary.LittleEndian.Uint32(saved))
		packed = append(packed, saved[4])
		packed = binary.LittleEndian.AppendUint16(packed, uint16(size))
		packed = append(packed, saved[blockHead:blockHead+size]...)
		saved = saved[blockHead+size+blockSum:]
	}
	f.Add(packed)
	arenas := testArenas()
	f.Fuzz(func(t *testing.T, b []byte) {
		var blocks []block
		for len(b) >= 3 {
			size := min(int(binary.LittleEndian.Uint16(b[1:])), len(b)-3)
			blocks = append(blocks, block{blockType(b[0]), b[3 : 3+size]})
			b = b[3+size:]
		}
		restoreOrRefuse(t, newReplica(t, arenas), stream(blocks...))
	})
}

// restoreOrRefuse asserts that bytes are taken whole or not at all, and that
// what was taken can be saved and taken again.
func restoreOrRefuse(t *testing.T, r *replica, b []byte) {
	if err := r.Restore(bytes.NewReader(b)); err != nil {
		require.True(t, sundog.KindOf(err) == sundog.Corrupt || sundog.KindOf(err) == sundog.NoSpace || sundog.KindOf(err) == sundog.TooLarge, "%v", err)
		require.Empty(t, r.state.pools)
		require.Nil(t, r.guard.current.Load())
		return
	}
	r.checkAccounts(t)
	before := r.contents()
	require.NoError(t, r.Restore(bytes.NewReader(r.saved(t))))
	require.Equal(t, before, r.contents())
}
