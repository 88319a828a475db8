package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

func newLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func mapAt(cluster string, e sundog.Epoch) *ring.Map { return &ring.Map{Cluster: cluster, Epoch: e} }

func TestAtlasTakesNewerOnly(t *testing.T) {
	bound := ""
	a := newAtlas(func(c string) error { bound = c; return nil }, newLog())
	changed := a.Changed()
	took, err := a.Offer(mapAt("a", 5))
	require.NoError(t, err)
	require.True(t, took)
	require.Equal(t, "a", bound)
	<-changed
	for _, e := range []sundog.Epoch{4, 5} {
		took, err = a.Offer(mapAt("a", e))
		require.NoError(t, err)
		require.False(t, took)
	}
	_, err = a.Offer(mapAt("b", 9))
	require.Equal(t, sundog.Conflict, sundog.KindOf(err))
	_, err = a.Offer(mapAt("", 9))
	require.Equal(t, sundog.Invalid, sundog.KindOf(err))
	require.Equal(t, sundog.Epoch(5), a.Epoch())
}

func TestAtlasBindsFirst(t *testing.T) {
	a := newAtlas(func(string) error { return sundog.Errorf(sundog.Conflict, "of another cluster") }, newLog())
	_, err := a.Offer(mapAt("a", 5))
	require.Equal(t, sundog.Conflict, sundog.KindOf(err))
	require.Nil(t, a.Map())
}

// TestPullerSharesSweeps: many requests that need a newer map cost few pulls,
// and an epoch that nobody has is not looked for without end.
func TestPullerSharesSweeps(t *testing.T) {
	a := newAtlas(func(string) error { return nil }, newLog())
	_, err := a.Offer(mapAt("a", 5))
	require.NoError(t, err)
	p := newPuller(a, nil, func() []sundog.NodeID { return []sundog.NodeID{1, 2, 3, 4} }, newLog())
	var pulls atomic.Int64
	p.call = func(_ context.Context, id sundog.NodeID, have sundog.Epoch) (*ring.Map, error) {
		pulls.Add(1)
		if id == 2 && have < 8 {
			return mapAt("a", 8), nil
		}
		return nil, sundog.Errorf(sundog.Unavailable, "not here")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	const askers = 50
	results := make(chan error, askers)
	for range askers {
		go func() { results <- p.need(ctx, 8) }()
	}
	for range askers {
		require.NoError(t, <-results)
	}
	require.LessOrEqual(t, pulls.Load(), int64(12))
	err = p.need(ctx, 1000)
	require.Equal(t, sundog.Unavailable, sundog.KindOf(err))
	require.Equal(t, sundog.Epoch(8), sundog.AsError(err).Epoch)
	cancel()
	<-done
	require.Equal(t, sundog.Closed, sundog.KindOf(p.need(ctx, 1000)))
}
