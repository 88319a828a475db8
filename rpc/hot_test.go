package rpc

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
	"pgregory.net/rapid"
)

// Generators of everything that goes over the wire. Nil and empty byte slices
// are one on the wire; generators give what decoders give.

func genBytes(max int) *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.Map(rapid.IntRange(0, max), func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }),
	)
}

var genVersion = rapid.Custom(func(t *rapid.T) sundog.Version {
	return sundog.Version{Clock: sundog.Clock(rapid.Uint64().Draw(t, "clock")), Node: sundog.NodeID(rapid.Uint64().Draw(t, "node"))}
})

var genError = rapid.Custom(func(t *rapid.T) *sundog.Error {
	return &sundog.Error{
		Kind:   sundog.Kind(rapid.Uint8Min(1).Draw(t, "kind")),
		Msg:    rapid.StringN(0, 100, maxErrorText).Draw(t, "msg"),
		Epoch:  sundog.Epoch(rapid.Uint64().Draw(t, "epoch")),
		Leader: sundog.NodeID(rapid.Uint64().Draw(t, "leader")),
		Used:   rapid.Int64().Draw(t, "used"),
		Limit:  rapid.Int64().Draw(t, "limit"),
	}
})

var genOp = rapid.Custom(func(t *rapid.T) Op {
	op := Op{
		Code: OpCode(rapid.IntRange(1, 3).Draw(t, "code")),
		Cond: Cond(rapid.IntRange(0, 2).Draw(t, "cond")),
		Pool: sundog.PoolID(rapid.Uint64().Draw(t, "pool")),
		Key:  genBytes(sundog.MaxKey).Draw(t, "key"),
		TTL:  time.Duration(rapid.Int64Range(0, int64(maxTTL)).Draw(t, "ttl")) * time.Millisecond,
	}
	op.Value = []byte{}
	switch op.Code {
	case OpPut:
		op.Value = genBytes(3*copyMax).Draw(t, "value")
	case OpIncr:
		op.Delta = rapid.Int64().Draw(t, "delta")
	}
	if op.Cond == CondVersion {
		op.IfVersion = genVersion.Draw(t, "if")
	}
	return op
})

var genItem = rapid.Custom(func(t *rapid.T) Item {
	return Item{Version: genVersion.Draw(t, "version"), Deadline: rapid.Int64().Draw(t, "deadline"), Value: genBytes(3*copyMax).Draw(t, "value")}
})

func TestHotBodiesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(genOp, 0, 8).Draw(t, "ops")
		gotOps, err := DecodeMutate(EncodeMutate(ops).Bytes())
		require.NoError(t, err)
		require.Equal(t, ops, gotOps)

		// In a log an op is followed by others: it must know its own end.
		var logged []byte
		for i := range ops {
			logged = AppendOp(logged, &ops[i])
		}
		for i := range ops {
			var op Op
			op, logged, err = DecodeOp(logged)
			require.NoError(t, err)
			require.Equal(t, ops[i], op)
		}
		require.Empty(t, logged)
	})
	rapid.Check(t, func(t *rapid.T) {
		results := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) OpResult {
			r := OpResult{Version: genVersion.Draw(t, "version"), Int: rapid.Int64().Draw(t, "int")}
			if rapid.Bool().Draw(t, "failed") {
				r.Err = genError.Draw(t, "err")
			}
			return r
		}), 0, 8).Draw(t, "results")
		got, err := DecodeResults(EncodeResults(results).Bytes())
		require.NoError(t, err)
		require.Equal(t, results, got)
	})
	rapid.Check(t, func(t *rapid.T) {
		r := GetRequest{Pool: sundog.PoolID(rapid.Uint64().Draw(t, "pool")), Key: genBytes(sundog.MaxKey).Draw(t, "key")}
		got, err := DecodeGet(EncodeGet(r).Bytes())
		require.NoError(t, err)
		require.Equal(t, r, got)

		it := genItem.Draw(t, "item")
		gotItem, err := DecodeItem(EncodeItem(it).Bytes())
		require.NoError(t, err)
		require.Equal(t, it, gotItem)
	})
	rapid.Check(t, func(t *rapid.T) {
		r := MultiGetRequest{Pool: sundog.PoolID(rapid.Uint64().Draw(t, "pool")), Keys: rapid.SliceOfN(genBytes(200), 0, 8).Draw(t, "keys")}
		got, err := DecodeMultiGet(EncodeMultiGet(r).Bytes())
		require.NoError(t, err)
		require.Equal(t, r, got)

		results := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) GetResult {
			if rapid.Bool().Draw(t, "failed") {
				return GetResult{Err: genError.Draw(t, "err")}
			}
			return GetResult{Item: genItem.Draw(t, "item")}
		}), 0, 8).Draw(t, "results")
		gotResults, err := DecodeGetResults(EncodeGetResults(results).Bytes())
		require.NoError(t, err)
		require.Equal(t, results, gotResults)
	})
	rapid.Check(t, func(t *rapid.T) {
		r := ScanRequest{
			Pool: sundog.PoolID(rapid.Uint64().Draw(t, "pool")), Partition: sundog.Partition(rapid.Uint16().Draw(t, "partition")),
			Cursor: rapid.Uint64().Draw(t, "cursor"), Limit: rapid.IntRange(0, 1<<32-1).Draw(t, "limit"),
			Prefix: genBytes(200).Draw(t, "prefix"), KeysOnly: rapid.Bool().Draw(t, "keys only"),
		}
		got, err := DecodeScan(EncodeScan(r).Bytes())
		require.NoError(t, err)
		require.Equal(t, r, got)

		reply := ScanReply{Next: rapid.Uint64().Draw(t, "next"), Items: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ScanItem {
			it := genItem.Draw(t, "item")
			return ScanItem{Key: genBytes(200).Draw(t, "key"), Version: it.Version, Deadline: it.Deadline, Value: it.Value}
		}), 0, 8).Draw(t, "items")}
		gotReply, err := DecodeScanReply(EncodeScanReply(reply).Bytes())
		require.NoError(t, err)
		require.Equal(t, reply, gotReply)
	})
}

// TestLargeValuesAreNotCopied holds the promise of Body: a value above 4 KiB
// travels from where it lies.
func TestLargeValuesAreNotCopied(t *testing.T) {
	value := make([]byte, copyMax+1)
	references := func(b Body) (n int) {
		for _, p := range b {
			if len(p) == len(value) && &p[0] == &value[0] {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, references(EncodeMutate([]Op{{Code: OpPut, Key: []byte("a"), Value: value}, {Code: OpPut, Key: []byte("b"), Value: value}})))
	require.Equal(t, 1, references(EncodeItem(Item{Value: value})))
	require.Equal(t, 2, references(EncodeGetResults([]GetResult{{Item: Item{Value: value}}, {Item: Item{Value: value}}})))
	require.Equal(t, 1, references(EncodeScanReply(ScanReply{Items: []ScanItem{{Key: []byte("k"), Value: value}}})))
}

func TestTimeToLiveIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Millisecond, time.Millisecond: time.Millisecond,
		time.Millisecond + 1: 2 * time.Millisecond, 1<<63 - 1: time.Duration(maxTTL) * time.Millisecond,
	} {
		op, _, err := DecodeOp(AppendOp(nil, &Op{Code: OpPut, TTL: d}))
		require.NoError(t, err)
		require.Equal(t, want, op.TTL, "of %v", d)
	}
}

func TestErrorKeepsItsIdentity(t *testing.T) {
	sent := sundog.Errorf(sundog.NotOwner, "partition 3 is led elsewhere")
	sent.Epoch, sent.Leader = 12, 0xabc
	got, rest, err := DecodeError(append(AppendError(nil, sent), "rest"...))
	require.NoError(t, err)
	require.Equal(t, "rest", string(rest))
	require.True(t, errors.Is(got, sundog.NotOwner))
	require.Equal(t, sundog.Epoch(12), got.Epoch)
	require.Equal(t, sundog.NodeID(0xabc), got.Leader)

	long := sundog.Errorf(sundog.Internal, "%s", strings.Repeat("ä", maxErrorText))
	got, _, err = DecodeError(AppendError(nil, long))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ä", maxErrorText/2), got.Msg, "cut between runes")
}

// TestDecodersRefuseEveryCut gives each decoder every proper prefix of a valid
// message, and the message with a byte more.
func TestDecodersRefuseEveryCut(t *testing.T) {
	for name, c := range hotCases() {
		whole := c.body.Bytes()
		require.NoError(t, c.decode(whole), name)
		for n := range whole {
			require.ErrorIs(t, c.decode(whole[:n:n]), sundog.Corrupt, "%s cut to %d of %d", name, n, len(whole))
		}
		require.ErrorIs(t, c.decode(append(whole[:len(whole):len(whole)], 0)), sundog.Corrupt, name)
	}
}

type hotCase struct {
	body   Body
	decode func([]byte) error
}

// hotCases is one valid body of each hot message, rich in fields; it also seeds
// the fuzzers.
func hotCases() map[string]hotCase {
	key, value := []byte("libc6"), []byte(`{"version":"2.36-9"}`)
	version := sundog.Version{Clock: 77, Node: 5}
	full := sundog.Errorf(sundog.NoSpace, "full")
	full.Used, full.Limit, full.Epoch, full.Leader = 9, 10, 3, 4
	item := Item{Version: version, Deadline: 1_700_000_000_000, Value: value}
	return map[string]hotCase{
		"mutate": {EncodeMutate([]Op{
			{Code: OpPut, Pool: 1, Key: key, Value: value, Cond: CondVersion, IfVersion: version, TTL: time.Second},
			{Code: OpDelete, Pool: 1, Key: key}, {Code: OpIncr, Pool: 1, Key: key, Delta: -3, Cond: CondAbsent},
		}), func(b []byte) error { _, err := DecodeMutate(b); return err }},
		"results":  {EncodeResults([]OpResult{{Version: version, Int: 5}, {Err: full}, {}}), func(b []byte) error { _, err := DecodeResults(b); return err }},
		"get":      {EncodeGet(GetRequest{Pool: 1, Key: key}), func(b []byte) error { _, err := DecodeGet(b); return err }},
		"item":     {EncodeItem(item), func(b []byte) error { _, err := DecodeItem(b); return err }},
		"multiget": {EncodeMultiGet(MultiGetRequest{Pool: 1, Keys: [][]byte{key, value}}), func(b []byte) error { _, err := DecodeMultiGet(b); return err }},
		"getresults": {EncodeGetResults([]GetResult{{Item: item}, {Err: full}}),
			func(b []byte) error { _, err := DecodeGetResults(b); return err }},
		"scan": {EncodeScan(ScanRequest{Pool: 1, Partition: 2, Cursor: 3, Limit: 4, Prefix: key, KeysOnly: true}),
			func(b []byte) error { _, err := DecodeScan(b); return err }},
		"scanreply": {EncodeScanReply(ScanReply{Next: 9, Items: []ScanItem{{Key: key, Version: version, Value: value}}}),
			func(b []byte) error { _, err := DecodeScanReply(b); return err }},
	}
}
