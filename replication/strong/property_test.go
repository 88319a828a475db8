package strong

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
)

// drawOp makes an op on few keys of few pools, one of which never exists.
func drawOp(t *rapid.T, versions []sundog.Version) rpc.Op {
	op := rpc.Op{
		Code: rapid.SampledFrom([]rpc.OpCode{rpc.OpPut, rpc.OpPut, rpc.OpDelete, rpc.OpIncr}).Draw(t, "code"),
		Pool: sundog.PoolID(rapid.IntRange(1, 4).Draw(t, "pool")),
		Key:  []byte(rapid.SampledFrom([]string{"a", "b", "c", "{a}d", "e"}).Draw(t, "key")),
		Cond: rapid.SampledFrom([]rpc.Cond{rpc.CondNone, rpc.CondNone, rpc.CondAbsent, rpc.CondVersion}).Draw(t, "cond"),
	}
	switch op.Code {
	case rpc.OpPut:
		op.Value = rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "value")
	case rpc.OpIncr:
		op.Delta = rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64()).Draw(t, "delta")
	}
	if op.Code != rpc.OpDelete {
		op.TTL = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 400}).Draw(t, "ttl")) * time.Millisecond
	}
	if op.Cond == rpc.CondVersion && len(versions) > 0 {
		op.IfVersion = rapid.SampledFrom(versions).Draw(t, "version")
	}
	return op
}

// drawEntry makes the next entry of a log; clocks of leaders differ.
func drawEntry(t *rapid.T, last raftgroup.Entry, versions []sundog.Version) raftgroup.Entry {
	e := raftgroup.Entry{
		Index: last.Index + uint64(rapid.IntRange(1, 2).Draw(t, "index step")),
		Term:  last.Term + uint64(rapid.IntRange(0, 1).Draw(t, "term step")),
		Clock: sundog.Clock(max(1, int64(last.Clock)+rapid.Int64Range(-100<<16, 200<<16).Draw(t, "clock step"))),
	}
	for range rapid.IntRange(0, 3).Draw(t, "commands") {
		switch rapid.SampledFrom([]kind{kindOps, kindOps, kindOps, kindPools, kindTick, kindCheck}).Draw(t, "kind") {
		case kindOps:
			var ops []rpc.Op
			for range rapid.IntRange(1, 4).Draw(t, "ops") {
				ops = append(ops, drawOp(t, versions))
			}
			e.Commands = append(e.Commands, appendOps(nil, ops))
		case kindPools:
			var ids []sundog.PoolID
			for id := sundog.PoolID(1); id <= 3; id++ {
				if rapid.IntRange(0, 3).Draw(t, "has pool") > 0 {
					ids = append(ids, id)
				}
			}
			e.Commands = append(e.Commands, poolsCommand(sundog.Epoch(rapid.IntRange(1, 30).Draw(t, "catalog")), ids...))
		case kindTick:
			e.Commands = append(e.Commands, appendTick(nil))
		case kindCheck:
			e.Commands = append(e.Commands, appendCheck(nil, 1, 1))
		}
	}
	return e
}

// Two replicas that are fed the same log, one of them interrupted by snapshots
// and restores at random points, give the same results and hold the same.
func TestApplyIsDeterministic(t *testing.T) {
	arenas := testArenas()
	rapid.Check(t, func(t *rapid.T) {
		a, b := newReplica(t, arenas), newReplica(t, arenas)
		a.queue, b.queue = noChecks, noChecks
		last := raftgroup.Entry{Clock: at(1000)}
		var versions []sundog.Version
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			last = drawEntry(t, last, versions)
			got, want := a.Apply(last), b.Apply(last)
			require.Equal(t, want, got)
			versions = append(versions, versionsIn(got)...)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				require.NoError(t, b.Restore(bytes.NewReader(a.saved(t))))
			case 1: // a cut that is read after more was applied
				s, err := b.Snapshot()
				require.NoError(t, err)
				at := b.contents()
				last = drawEntry(t, last, versions)
				require.Equal(t, a.Apply(last), b.Apply(last))
				saved := bytesOf(t, s)
				s.Release()
				c := newReplica(t, arenas)
				require.NoError(t, c.Restore(bytes.NewReader(saved)))
				require.Equal(t, at, c.contents())
			}
		}
		require.Equal(t, a.contents(), b.contents())
		a.checkAccounts(t)
		b.checkAccounts(t)
		for id := range a.state.pools {
			require.Equal(t, a.sum(t, id), b.sum(t, id))
		}
		last.Index, last.Clock, last.Commands = last.Index+1, at(1<<40), nil // all that is due at all
		a.Apply(last)
		b.Apply(last)
		require.Equal(t, a.contents(), b.contents())
		require.EqualValues(t, neverDeadline, a.due.Load())
		require.EqualValues(t, neverDeadline, b.due.Load())
	})
}

func noChecks(checkJob) bool { return false }

func versionsIn(results []any) []sundog.Version {
	var all []sundog.Version
	for _, r := range results {
		ops, _ := r.([]rpc.OpResult)
		for _, o := range ops {
			all = append(all, o.Version)
		}
	}
	return all
}

// Apply against a Go map that knows the rules in their simplest form.
func TestApplyAgainstModel(t *testing.T) {
	arenas := testArenas()
	rapid.Check(t, func(t *rapid.T) {
		r := newReplica(t, arenas)
		r.queue = noChecks
		m := model{pools: map[sundog.PoolID]map[string]held{}}
		last := raftgroup.Entry{Clock: at(1000)}
		var versions []sundog.Version
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			last = drawEntry(t, last, versions)
			got := r.Apply(last)
			want := m.apply(t, last)
			require.Len(t, got, len(want))
			for i := range want {
				ops, _ := got[i].([]rpc.OpResult)
				require.Equal(t, want[i], kindsOf(ops))
			}
			versions = append(versions, versionsIn(got)...)
			require.Equal(t, contents{m.clock, m.highest, m.catalog, m.pools}, r.contents())
		}
		r.checkAccounts(t)
	})
}

// outcome is a result without its words.
type outcome struct {
	kind    sundog.Kind
	version sundog.Version
	sum     int64
}

func kindsOf(results []rpc.OpResult) []outcome {
	var out []outcome
	for _, r := range results {
		o := outcome{version: r.Version, sum: r.Int}
		if r.Err != nil {
			o.kind = r.Err.Kind
		}
		out = append(out, o)
	}
	return out
}

type model struct {
	clock   sundog.Clock
	highest sundog.Version
	catalog sundog.Epoch
	pools   map[sundog.PoolID]map[string]held
}

func (m *model) apply(t *rapid.T, e raftgroup.Entry) [][]outcome {
	m.clock = max(m.clock, e.Clock)
	for _, items := range m.pools {
		for k, h := range items {
			if h.deadline != 0 && h.deadline <= int64(m.clock>>16) {
				delete(items, k)
			}
		}
	}
	results := make([][]outcome, len(e.Commands))
	for i, b := range e.Commands {
		c, err := decodeCommand(b, nil)
		require.NoError(t, err)
		for j := range c.ops {
			results[i] = append(results[i], m.op(e.Clock, &c.ops[j]))
		}
		if c.kind == kindPools && c.set.catalog > m.catalog {
			m.catalog = c.set.catalog
			next := map[sundog.PoolID]map[string]held{}
			for _, spec := range c.set.pools {
				if next[spec.id] = m.pools[spec.id]; next[spec.id] == nil {
					next[spec.id] = map[string]held{}
				}
			}
			m.pools = next
		}
	}
	return results
}

func (m *model) op(clock sundog.Clock, op *rpc.Op) outcome {
	items, ok := m.pools[op.Pool]
	if !ok {
		return outcome{kind: sundog.Stale}
	}
	old, found := items[string(op.Key)]
	if op.Cond == rpc.CondAbsent && found {
		return outcome{kind: sundog.Exists, version: old.version}
	}
	if op.Cond == rpc.CondVersion && old.version != op.IfVersion {
		return outcome{kind: sundog.Conflict, version: old.version}
	}
	next := held{value: string(op.Value)}
	if op.TTL > 0 {
		next.deadline = int64(m.clock>>16) + op.TTL.Milliseconds()
	}
	var sum int64
	switch op.Code {
	case rpc.OpDelete:
		if !found {
			return outcome{kind: sundog.NotFound}
		}
	case rpc.OpIncr:
		if sum, ok = addTo(old.value, found, op.Delta); !ok {
			return outcome{kind: sundog.Invalid, version: old.version}
		}
		next.value = counter(sum)
		if op.TTL == 0 {
			next.deadline = old.deadline
		}
	}
	m.highest = sundog.Version{Clock: max(clock, m.highest.Clock+1)}
	next.version = m.highest
	if op.Code == rpc.OpDelete {
		delete(items, string(op.Key))
	} else {
		items[string(op.Key)] = next
	}
	return outcome{version: m.highest, sum: sum}
}

func addTo(value string, found bool, delta int64) (int64, bool) {
	if !found {
		return delta, true
	}
	if len(value) != 8 {
		return 0, false
	}
	var n uint64
	for i := 7; i >= 0; i-- {
		n = n<<8 | uint64(value[i])
	}
	sum := int64(n) + delta
	if (sum > int64(n)) != (delta > 0) && delta != 0 {
		return 0, false
	}
	return sum, true
}

// Hashes depend on the set, not on the order, and on every field.
func TestSetHash(t *testing.T) {
	sum := func(items ...func(*setHash)) [16]byte {
		var h setHash
		for _, add := range items {
			add(&h)
		}
		return h.bytes()
	}
	item := func(key, value string, clock, deadline int64) func(*setHash) {
		return func(h *setHash) {
			h.add([]byte(key), []byte(value), sundog.Version{Clock: sundog.Clock(clock)}, deadline)
		}
	}
	a, b := item("k", "v", 1, 0), item("l", "v", 2, 9)
	require.Equal(t, sum(a, b), sum(b, a))
	seen := map[[16]byte]string{}
	for name, s := range map[string][16]byte{
		"nothing": sum(), "a": sum(a), "b": sum(b), "a+b": sum(a, b), "a+a": sum(a, a),
		"key": sum(item("m", "v", 1, 0)), "value": sum(item("k", "w", 1, 0)), "version": sum(item("k", "v", 2, 0)),
		"deadline": sum(item("k", "v", 1, 1)), "border": sum(item("kv", "", 1, 0)),
	} {
		require.Empty(t, seen[s], fmt.Sprint(name, " is as ", seen[s]))
		seen[s] = name
	}
}
