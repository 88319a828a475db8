package strong

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/integration/history"
)

// TestLinearizable judges what six clients saw of four keys while the leader is
// cut off and killed in turn.
func TestLinearizable(t *testing.T) {
	rec := recordHistory(t, 5*time.Second, 800)
	all, unknown := rec.Len()
	t.Logf("%d operations, %d unknown", all, unknown)
	require.Greater(t, all, 500)
	require.NoError(t, rec.Check(time.Minute, t.TempDir()))
}

// recordHistory runs clients and faults for d, and longer where a busy machine has
// not got through that many operations by then.
func recordHistory(t *testing.T, d time.Duration, operations int) *history.Recorder {
	c := newCluster(t, nil, strongPool(1, 0))
	c.leader()
	rec := history.NewRecorder()
	ctx, cancel := context.WithTimeout(t.Context(), 12*d)
	defer cancel()
	began := time.Now()
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			cl := &client{c: c, rnd: rand.New(rand.NewPCG(uint64(i), 7)), id: i, seen: map[string]sundog.Version{}}
			for ctx.Err() == nil {
				cl.step(rec)
			}
		})
	}
	for round := 0; ctx.Err() == nil; round++ {
		if n, _ := rec.Len(); n > operations && time.Since(began) > d {
			cancel()
			break
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			continue
		}
		h := c.leader()
		if round%2 == 0 {
			c.isolate(h.id, true)
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
			c.isolate(h.id, false)
		} else {
			h.down()
			h.up()
		}
	}
	clients.Wait()
	return rec
}

// client does random operations and records them.
type client struct {
	c    *cluster
	rnd  *rand.Rand
	id   int
	n    int
	seen map[string]sundog.Version // newest version this client was told, by key
}

func (cl *client) step(rec *history.Recorder) {
	cl.n++
	op := history.Op{Key: fmt.Sprint("key-", cl.rnd.IntN(4)), Value: fmt.Sprintf("%d/%d", cl.id, cl.n)}
	switch cl.rnd.IntN(8) {
	case 0, 1, 2:
		op.Code, op.Value = history.Get, ""
	case 3:
		op.Code, op.Value = history.Delete, ""
	case 4:
		op.Code = history.PutIfAbsent
	case 5:
		if v, ok := cl.seen[op.Key]; ok {
			op.Code, op.IfVersion = history.PutIfVersion, v
			break
		}
		fallthrough
	default:
		op.Code = history.Put
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cl.c.t.Context()), time.Second)
	defer cancel()
	call := rec.Call()
	if res, known := cl.do(ctx, op); known {
		rec.Return(cl.id, call, op, res)
	}
}

// do runs the operation; known is false where it surely did nothing.
func (cl *client) do(ctx context.Context, op history.Op) (res history.Result, known bool) {
	at := cl.rnd.IntN(3)
	if op.Code == history.Get {
		got := cl.c.get(ctx, at, 1, op.Key)
		if got.Err != nil {
			return res, got.Err.Kind == sundog.NotFound
		}
		cl.seen[op.Key] = got.Item.Version
		return history.Result{Found: true, Value: string(got.Item.Value), Version: got.Item.Version}, true
	}
	o := put(1, op.Key, op.Value)
	switch op.Code {
	case history.Delete:
		o = del(1, op.Key)
	case history.PutIfAbsent:
		o = ifAbsent(o)
	case history.PutIfVersion:
		o = ifVersion(o, op.IfVersion)
	}
	r := cl.c.mutate(ctx, at, o)
	switch sundog.KindOf(asError(r.Err)) {
	case 0:
		cl.seen[op.Key] = r.Version
		return history.Result{Found: true, Applied: true, Version: r.Version}, true
	case sundog.Unknown:
		return history.Result{Unknown: true}, true
	case sundog.NotFound, sundog.Exists, sundog.Conflict:
		return history.Result{}, true
	}
	return res, false
}

// asError keeps a nil *Error a nil error.
func asError(e *sundog.Error) error {
	if e == nil {
		return nil
	}
	return e
}
