package strong

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
)

const testMemory = 256 << 20

// replica is a machine with the log it is fed, for tests below the group.
type replica struct {
	*machine
	index uint64
	jobs  []checkJob
}

func newReplica(t interface{ Cleanup(func()) }, arenas *replication.Arenas) *replica {
	r := &replica{}
	r.machine = newMachine(deps{
		partition: 3,
		arenas:    arenas,
		logger:    slog.New(slog.DiscardHandler),
		newID:     newID,
		now:       func() int64 { return 0 },
		queue:     func(j checkJob) bool { r.jobs = append(r.jobs, j); return true },
		onDue:     func() {},
		onApply:   func() {},
	})
	t.Cleanup(func() {
		for _, j := range r.jobs {
			j.close()
		}
		r.machine.close()
	})
	return r
}

func testArenas() *replication.Arenas { return newArenas(testMemory) }

func newArenas(limit int64) *replication.Arenas {
	return replication.NewArenas(dataplane.NewMemory(limit), nil)
}

// at is the clock reading of a moment in ms.
func at(ms int64) sundog.Clock { return sundog.Clock(ms) << 16 }

// apply feeds one entry made at ms.
func (r *replica) apply(ms int64, commands ...[]byte) []any {
	r.index++
	return r.Apply(raftgroup.Entry{Index: r.index, Term: 1 + r.index/50, Clock: at(ms), Commands: commands})
}

// do applies ops in an entry of their own.
func (r *replica) do(t require.TestingT, ms int64, ops ...rpc.Op) []rpc.OpResult {
	results := r.apply(ms, appendOps(nil, ops))
	require.Len(t, results, 1)
	return results[0].([]rpc.OpResult)
}

func (r *replica) one(t require.TestingT, ms int64, op rpc.Op) rpc.OpResult {
	return r.do(t, ms, op)[0]
}

// withPools gives the replica pools without quota.
func (r *replica) withPools(catalog sundog.Epoch, ids ...sundog.PoolID) *replica {
	r.apply(0, poolsCommand(catalog, ids...))
	return r
}

func poolsCommand(catalog sundog.Epoch, ids ...sundog.PoolID) []byte {
	set := poolSet{catalog: catalog}
	for _, id := range ids {
		set.pools = append(set.pools, poolSpec{id: id, maxValue: sundog.MaxValue})
	}
	return appendPools(nil, set)
}

func put(pool sundog.PoolID, key, value string) rpc.Op {
	return rpc.Op{Code: rpc.OpPut, Pool: pool, Key: []byte(key), Value: []byte(value)}
}

func del(pool sundog.PoolID, key string) rpc.Op {
	return rpc.Op{Code: rpc.OpDelete, Pool: pool, Key: []byte(key)}
}

func incr(pool sundog.PoolID, key string, delta int64) rpc.Op {
	return rpc.Op{Code: rpc.OpIncr, Pool: pool, Key: []byte(key), Delta: delta}
}

func ttl(op rpc.Op, d time.Duration) rpc.Op { op.TTL = d; return op }

func ifAbsent(op rpc.Op) rpc.Op { op.Cond = rpc.CondAbsent; return op }

func ifVersion(op rpc.Op, v sundog.Version) rpc.Op {
	op.Cond, op.IfVersion = rpc.CondVersion, v
	return op
}

// held is what a table has under a key.
type held struct {
	value    string
	version  sundog.Version
	deadline int64
}

func (r *replica) get(pool sundog.PoolID, key string) (held, bool) {
	it, ok := r.state.pools[pool].table.Get([]byte(key), nil)
	return held{string(it.Value), it.Version, it.Deadline}, ok
}

// contents is all that a replica replicates, in comparable form.
type contents struct {
	Clock   sundog.Clock
	Highest sundog.Version
	Catalog sundog.Epoch
	Pools   map[sundog.PoolID]map[string]held
}

func (r *replica) contents() contents {
	c := contents{r.state.clock, r.state.highest, r.state.catalog, map[sundog.PoolID]map[string]held{}}
	for id, p := range r.state.pools {
		items := map[string]held{}
		for cursor := uint64(0); ; {
			cursor = p.table.Scan(cursor, 100, func(key []byte, _ table.Item) bool {
				items[string(key)], _ = r.get(id, string(key))
				return true
			})
			if cursor == 0 {
				break
			}
		}
		c.Pools[id] = items
	}
	return c
}

// sum hashes a pool's table as a check does.
func (r *replica) sum(t require.TestingT, pool sundog.PoolID) replication.CheckSum {
	p := r.state.pools[pool]
	p.hold()
	job := checkJob{pool: p, cut: p.table.Cut()}
	defer job.close()
	sum, ok := job.hash(make(life))
	require.True(t, ok)
	return sum
}

// checkAccounts compares every pool's counters with its table.
func (r *replica) checkAccounts(t require.TestingT) {
	for id, p := range r.state.pools {
		var keys, size int64
		for key, h := range r.contents().Pools[id] {
			keys++
			size += int64(len(key) + len(h.value))
		}
		require.Equal(t, keys, p.keys.Load(), "keys of pool %d", id)
		require.Equal(t, size, p.bytes.Load(), "bytes of pool %d", id)
		require.Equal(t, size, p.ledger.used)
		st := p.table.Stats()
		require.Equal(t, keys, st.Keys)
		require.Equal(t, size, st.LiveBytes)
	}
}

// saved is the snapshot of the replica as bytes.
func (r *replica) saved(t require.TestingT) []byte {
	s, err := r.Snapshot()
	require.NoError(t, err)
	defer s.Release()
	return bytesOf(t, s)
}

func bytesOf(t require.TestingT, s io.WriterTo) []byte {
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	return b.Bytes()
}

func counter(n int64) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
