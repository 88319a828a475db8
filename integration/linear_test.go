//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/history"
	"github.com/sundog-kv/sundog/integration/procs"
)

// worker makes random calls on a few keys, one at a time, and records them.
type worker struct {
	id   int
	pool *client.Pool
	rec  *history.Recorder
	rng  *rand.Rand
	keys int
	n    int                       // values written, to make each unique
	seen map[string]sundog.Version // last version seen of a key
}

// callTimeout is the deadline of each call: longer than a failover, so that most
// calls end with an outcome.
const callTimeout = 4 * time.Second

func (w *worker) run(ctx context.Context) {
	pace := time.NewTicker(4 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			w.step(ctx)
		}
	}
}

func (w *worker) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	op := w.choose()
	call := w.rec.Call()
	res, known := w.do(ctx, op)
	if !known {
		return // surely not executed, or a read without an answer
	}
	if !res.Version.IsZero() {
		w.seen[op.Key] = res.Version
	}
	w.rec.Return(w.id, call, op, res)
}

func (w *worker) choose() history.Op {
	op := history.Op{Key: fmt.Sprintf("key-%d", w.rng.IntN(w.keys))}
	w.n++
	op.Value = fmt.Sprintf("w%d-%d", w.id, w.n)
	switch d := w.rng.IntN(100); {
	case d < 45:
		op.Code, op.Value = history.Get, ""
	case d < 75:
		op.Code = history.Put
	case d < 83:
		op.Code, op.Value = history.Delete, ""
	case d < 91:
		op.Code = history.PutIfAbsent
	default:
		op.Code = history.PutIfVersion
		if op.IfVersion = w.seen[op.Key]; op.IfVersion.IsZero() {
			op.Code, op.Value = history.Get, ""
		}
	}
	return op
}

// do makes the call; known is false where nothing can be recorded.
func (w *worker) do(ctx context.Context, op history.Op) (res history.Result, known bool) {
	var err error
	key := []byte(op.Key)
	switch op.Code {
	case history.Get:
		item, err := w.pool.Get(ctx, key)
		if errors.Is(err, sundog.NotFound) {
			return history.Result{}, true
		}
		return history.Result{Found: true, Value: string(item.Value), Version: item.Version}, err == nil
	case history.Put:
		res.Version, err = w.pool.Put(ctx, key, []byte(op.Value))
		res.Applied = err == nil
	case history.Delete:
		res.Version, err = w.pool.Delete(ctx, key)
		res.Found = err == nil
	case history.PutIfAbsent:
		res.Version, err = w.pool.Put(ctx, key, []byte(op.Value), client.IfAbsent())
		res.Applied = err == nil
	case history.PutIfVersion:
		res.Version, err = w.pool.Put(ctx, key, []byte(op.Value), client.IfVersion(op.IfVersion))
		res.Applied = err == nil
	}
	switch sundog.KindOf(err) {
	case 0:
		return res, true
	case sundog.Unknown:
		return history.Result{Unknown: true}, true
	case sundog.NotFound, sundog.Exists, sundog.Conflict:
		return history.Result{}, true // answered: the condition did not hold
	}
	return history.Result{}, false
}

// faults counts what was done to the servers.
type faults struct{ kills, pauses atomic.Int64 }

// torment kills and pauses servers, one or two at a time, until ctx ends; then all
// run again.
func torment(ctx context.Context, t *testing.T, cluster *procs.Cluster, rng *rand.Rand, f *faults) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		nodes := cluster.Nodes()
		first := rng.IntN(len(nodes))
		many := 1 + rng.IntN(4)/3 // one in four rounds hits two servers: no majority
		for i := range many {
			n, pause := nodes[(first+i)%len(nodes)], rng.IntN(2) == 0
			down := time.Duration(500+rng.IntN(3500)) * time.Millisecond
			wg.Go(func() { hit(ctx, t, n, pause, down, f) })
		}
		wg.Wait()
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(500+rng.IntN(2000)) * time.Millisecond):
		}
	}
}

func hit(ctx context.Context, t *testing.T, n *procs.Node, pause bool, down time.Duration, f *faults) {
	wait := func() {
		select {
		case <-ctx.Done():
		case <-time.After(down):
		}
	}
	if pause {
		assert.NoError(t, n.Pause())
		f.pauses.Add(1)
		wait()
		assert.NoError(t, n.Resume())
		return
	}
	n.Kill()
	f.kills.Add(1)
	wait()
	startCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	assert.NoError(t, n.Start(startCtx))
}

// linearScenario runs clients and faults for a while and returns the history.
func linearScenario(t *testing.T, opts procs.Options, d time.Duration) (*history.Recorder, *faults) {
	s := seed(t)
	cluster := startCluster(t, 3, opts)
	pool := strongPool(t, dial(t, cluster.Listen(), client.Options{}), "linear")
	rec, f := history.NewRecorder(), &faults{}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for id := range 6 {
		c := dial(t, cluster.Listen(), client.Options{})
		p, err := c.Pool(ctx, pool.Name())
		require.NoError(t, err)
		w := &worker{id: id, pool: p, rec: rec, keys: 6, seen: map[string]sundog.Version{},
			rng: rand.New(rand.NewPCG(uint64(s), uint64(id)))}
		wg.Go(func() { w.run(ctx) })
	}
	torment(ctx, t, cluster, rand.New(rand.NewPCG(uint64(s), 1000)), f)
	wg.Wait()
	all, unknown := rec.Len()
	t.Logf("%d operations, %d of unknown outcome, %d kills, %d pauses", all, unknown, f.kills.Load(), f.pauses.Load())
	requireEqualReplicas(t, cluster, dial(t, cluster.Listen(), client.Options{}), pool.Name())
	return rec, f
}

// TestLinearizable: real processes, kill -9 and SIGSTOP, one minute.
func TestLinearizable(t *testing.T) {
	long(t)
	rec, f := linearScenario(t, procs.Options{}, 65*time.Second)
	all, _ := rec.Len()
	require.Greater(t, all, 1000, "too few operations to mean anything")
	require.GreaterOrEqual(t, f.kills.Load(), int64(3))
	require.GreaterOrEqual(t, f.pauses.Load(), int64(3))
	require.NoError(t, rec.Check(2*time.Minute, artifacts(t)))
}

// artifacts is a folder that outlives the test, for pictures of bad histories.
func artifacts(t *testing.T) string {
	dir := os.TempDir() + "/sundog-artifacts-" + t.Name()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}
