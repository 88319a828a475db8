package strong

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// solo is a group of one: what is proposed is applied, one entry a command.
type solo struct {
	p      *Partition
	stall  chan struct{} // while not nil, barriers wait for it to be closed
	closed chan struct{}

	mu      sync.Mutex // guards the rest and orders Apply
	leading bool
	index   uint64
	ticks   int
	passed  func()   // called after each barrier, if set
	hide    bool     // the outcome of a proposal is not told, and it is applied later
	later   [][]byte // those
}

const soloLeader = sundog.NodeID(77)

func (g *solo) Propose(ctx context.Context, command []byte) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.cannot(); err != nil {
		return nil, err
	}
	if g.hide {
		g.later = append(g.later, command)
		return nil, sundog.Errorf(sundog.Unknown, "the answer got lost")
	}
	if command[0] == byte(kindTick) {
		g.ticks++
	}
	results := g.apply(command)
	if len(results) != 1 {
		return nil, sundog.Errorf(sundog.Unknown, "the machine stopped")
	}
	return results[0], nil
}

func (g *solo) cannot() error {
	select {
	case <-g.closed:
		return sundog.Errorf(sundog.Closed, "group closed")
	default:
	}
	if !g.leading {
		e := sundog.Errorf(sundog.NotOwner, "not the leader")
		e.Leader = soloLeader
		return e
	}
	return nil
}

func (g *solo) apply(commands ...[]byte) []any {
	g.index++
	return g.p.machine.Apply(raftgroup.Entry{Index: g.index, Term: 1, Clock: g.p.clock(), Commands: commands})
}

func (g *solo) Barrier(ctx context.Context) error {
	g.mu.Lock()
	stall := g.stall
	g.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-g.closed:
		case <-ctx.Done():
			return sundog.Errorf(sundog.Timeout, "barrier: %w", ctx.Err())
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.cannot(); err != nil {
		return err
	}
	for _, c := range g.later {
		g.apply(c)
	}
	g.later = nil
	g.apply()
	if g.passed != nil {
		g.passed()
	}
	return nil
}

func (g *solo) Status() raftgroup.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return raftgroup.Status{Leading: g.leading, Leader: soloLeader, Term: 1, Applied: g.index, Members: []string{"a"}}
}

func (g *solo) Close() error {
	close(g.closed)
	return nil
}

func (g *solo) lead(leading bool) {
	g.mu.Lock()
	g.leading = leading
	g.mu.Unlock()
	g.p.onLeader(leading, 1)
}

func (g *solo) do(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
}

// bench is a partition over a solo group, and the map that it sees.
type bench struct {
	*Partition
	solo *solo
	mu   sync.Mutex // guards m
	m    *ring.Map
}

func openSolo(t *testing.T, memory int64, pools ...ring.Pool) *bench {
	return openSoloAt(t, memory, nil, pools...)
}

// openSoloAt has a clock of its own.
func openSoloAt(t *testing.T, memory int64, clock func() sundog.Clock, pools ...ring.Pool) *bench {
	b := &bench{m: &ring.Map{Epoch: 10, Partitions: 4, Pools: pools}}
	b.Partition = newPartition(Config{Partition: 3, Arenas: newArenas(memory), Group: raftgroup.Config{Clock: clock}, Map: func() *ring.Map {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.m
	}})
	b.solo = &solo{p: b.Partition, closed: make(chan struct{})}
	b.start(b.solo)
	b.solo.lead(true)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (b *bench) setMap(epoch sundog.Epoch, pools ...ring.Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m = &ring.Map{Epoch: epoch, Partitions: 4, Pools: pools}
}

func strongPool(id sundog.PoolID, quota int64) ring.Pool {
	spec := sundog.PoolSpec{Consistency: sundog.Strong, Quota: quota}.WithDefaults()
	return ring.Pool{ID: id, Name: "p", Spec: spec}
}

func (b *bench) mutate(t *testing.T, ops ...rpc.Op) []rpc.OpResult {
	results := b.Mutate(ctxOf(t), ops)
	require.Len(t, results, len(ops))
	return results
}

func (b *bench) one(t *testing.T, op rpc.Op) rpc.OpResult { return b.mutate(t, op)[0] }

func (b *bench) read(t *testing.T, pool sundog.PoolID, keys ...string) []rpc.GetResult {
	var bytes [][]byte
	for _, k := range keys {
		bytes = append(bytes, []byte(k))
	}
	results := b.Get(ctxOf(t), pool, bytes)
	require.Len(t, results, len(keys))
	return results
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (b *bench) poolStatus(id sundog.PoolID) (s replication.PoolStatus) {
	for _, p := range b.Status().Pools {
		if p.ID == id {
			s = p
		}
	}
	return s
}
