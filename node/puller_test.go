package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// rumours is a puller at epoch 5 in virtual time, whose one source has an epoch.
func rumours(t *testing.T, has *atomic.Uint64, reached *atomic.Bool) (*puller, *atomic.Int64) {
	a := newAtlas(func(string) error { return nil }, newLog())
	_, err := a.Offer(mapAt("a", 5))
	require.NoError(t, err)
	p := newPuller(a, nil, func() []sundog.NodeID { return []sundog.NodeID{2} }, newLog())
	pulls := new(atomic.Int64)
	p.call = func(_ context.Context, _ sundog.NodeID, have sundog.Epoch) (*ring.Map, error) {
		pulls.Add(1)
		if !reached.Load() {
			return nil, sundog.Errorf(sundog.Unavailable, "not there")
		}
		if e := sundog.Epoch(has.Load()); e > have {
			return mapAt("a", e), nil
		}
		return nil, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, pulls
}

// TestFalseRumour: an epoch that nobody has makes nobody unready, costs a pull now
// and then while it is told, and nothing when it is not; true news arrive all the
// same.
func TestFalseRumour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has, reached := new(atomic.Uint64), new(atomic.Bool)
		has.Store(5)
		reached.Store(true)
		p, pulls := rumours(t, has, reached)
		const told = 10 * time.Minute
		for began, e := time.Now(), sundog.Epoch(1<<60); time.Since(began) < told; e++ {
			p.hear(e) // a new one each time
			time.Sleep(100 * time.Millisecond)
			require.Zero(t, p.missed())
		}
		require.LessOrEqual(t, pulls.Load(), int64(told/pullRetries)+10)
		has.Store(50)
		p.hear(50)
		time.Sleep(pullRetries + time.Second)
		require.Equal(t, sundog.Epoch(50), p.atlas.Epoch())
		time.Sleep(rumourLife + pullRetries)
		require.Zero(t, p.pending(), "forgotten")
		before := pulls.Load()
		time.Sleep(time.Hour)
		require.Equal(t, before, pulls.Load())
		has.Store(60)
		p.hear(60)
		time.Sleep(pullRest)
		synctest.Wait()
		require.Equal(t, sundog.Epoch(60), p.atlas.Epoch(), "the pace of true news is the old one")
	})
}

// TestRumourThatCannotBeChecked: a node that reaches nobody says so.
func TestRumourThatCannotBeChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has, reached := new(atomic.Uint64), new(atomic.Bool)
		has.Store(9)
		p, _ := rumours(t, has, reached)
		p.hear(9)
		time.Sleep(time.Second)
		require.Equal(t, sundog.Epoch(9), p.missed())
		reached.Store(true)
		time.Sleep(pullRetries)
		require.Zero(t, p.missed())
		require.Equal(t, sundog.Epoch(9), p.atlas.Epoch())
	})
}

// TestNeedDoesNotWaitForRumours: a request that knows a newer epoch is served at
// once, however slow the pace of rumours is by then.
func TestNeedDoesNotWaitForRumours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has, reached := new(atomic.Uint64), new(atomic.Bool)
		has.Store(5)
		reached.Store(true)
		p, _ := rumours(t, has, reached)
		p.hear(1 << 60)
		time.Sleep(rumourLife / 2)
		has.Store(8)
		began := time.Now()
		require.NoError(t, p.need(t.Context(), 8))
		require.LessOrEqual(t, time.Since(began), 2*pullRest)
	})
}

// TestProbesHonourTheirDeadline: who asks while others probe answers in time.
func TestProbesHonourTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbes(newHosting(1, newAtlas(nil, newLog()), nil, nil, nil, newLog()))
		<-p.turn // somebody probes and does not end
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.Empty(t, p.run(ctx))
		require.Equal(t, 300*time.Millisecond, time.Since(began))
		p.turn <- struct{}{}
		require.Empty(t, p.run(t.Context()))
		require.Len(t, p.turn, 1)
	})
}
