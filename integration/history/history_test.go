package history

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

func v(n uint64) sundog.Version { return sundog.Version{Clock: sundog.Clock(n)} }

func TestCheck(t *testing.T) {
	put := func(call, end int64, value string, version uint64) porcupine.Operation {
		return porcupine.Operation{Call: call, Return: end, Input: Op{Code: Put, Key: "k", Value: value}, Output: Result{Version: v(version)}}
	}
	get := func(call, end int64, value string, version uint64) porcupine.Operation {
		return porcupine.Operation{Call: call, Return: end, Input: Op{Code: Get, Key: "k"}, Output: Result{Found: value != "", Value: value, Version: v(version)}}
	}
	unknown := func(call int64, op Op) porcupine.Operation {
		op.Key = "k"
		return porcupine.Operation{Call: call, Return: math.MaxInt64, Input: op, Output: Result{Unknown: true}}
	}
	conditional := func(call, end int64, op Op, applied bool, version uint64) porcupine.Operation {
		op.Key = "k"
		return porcupine.Operation{Call: call, Return: end, Input: op, Output: Result{Applied: applied, Version: v(version)}}
	}
	for name, c := range map[string]struct {
		ok  bool
		ops []porcupine.Operation
	}{
		"read your write":             {true, []porcupine.Operation{put(0, 1, "a", 5), get(2, 3, "a", 5)}},
		"stale read":                  {false, []porcupine.Operation{put(0, 1, "a", 5), put(2, 3, "b", 6), get(4, 5, "a", 5)}},
		"lost write":                  {false, []porcupine.Operation{put(0, 1, "a", 5), get(2, 3, "", 0)}},
		"concurrent, either order":    {true, []porcupine.Operation{put(0, 10, "a", 5), put(0, 10, "b", 6), get(11, 12, "b", 6)}},
		"version goes back":           {false, []porcupine.Operation{put(0, 1, "a", 5), put(2, 3, "b", 4)}},
		"read with a wrong version":   {false, []porcupine.Operation{put(0, 1, "a", 5), get(2, 3, "a", 6)}},
		"unknown write seen":          {true, []porcupine.Operation{unknown(0, Op{Code: Put, Value: "a"}), get(1, 2, "a", 5), get(3, 4, "a", 5)}},
		"unknown write seen, version": {false, []porcupine.Operation{unknown(0, Op{Code: Put, Value: "a"}), get(1, 2, "a", 5), get(3, 4, "a", 6)}},
		"unknown write not seen":      {true, []porcupine.Operation{put(0, 1, "b", 4), unknown(2, Op{Code: Put, Value: "a"}), get(3, 4, "b", 4)}},
		"unknown write comes and goes": {false, []porcupine.Operation{
			put(0, 1, "b", 4), unknown(2, Op{Code: Put, Value: "a"}), get(3, 4, "a", 5), get(5, 6, "b", 4)}},
		"two IfAbsent win": {false, []porcupine.Operation{
			conditional(0, 1, Op{Code: PutIfAbsent, Value: "a"}, true, 5), conditional(2, 3, Op{Code: PutIfAbsent, Value: "b"}, true, 6)}},
		"one IfAbsent wins": {true, []porcupine.Operation{
			conditional(0, 5, Op{Code: PutIfAbsent, Value: "a"}, true, 5), conditional(0, 5, Op{Code: PutIfAbsent, Value: "b"}, false, 0)}},
		"two IfVersion win": {false, []porcupine.Operation{put(0, 1, "a", 5),
			conditional(2, 3, Op{Code: PutIfVersion, IfVersion: v(5), Value: "b"}, true, 6),
			conditional(4, 5, Op{Code: PutIfVersion, IfVersion: v(5), Value: "c"}, true, 7)}},
		"IfVersion of an unknown write": {true, []porcupine.Operation{
			unknown(0, Op{Code: Put, Value: "a"}), get(1, 2, "a", 5),
			conditional(3, 4, Op{Code: PutIfVersion, IfVersion: v(5), Value: "b"}, true, 6), get(5, 6, "b", 6)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recorder{ops: c.ops}
			err := r.Check(10*time.Second, t.TempDir())
			if c.ok {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "not linearizable")
			}
		})
	}
}
