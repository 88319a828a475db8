package strong

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
)

func TestThreeReplicasServe(t *testing.T) {
	c := newCluster(t, nil, strongPool(1, 0))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	v := c.sure(ctx, put(1, "a", "v"))
	require.Equal(t, rpc.Item{Version: v, Value: []byte("v")}, c.get(ctx, 1, 1, "a").Item)
	c.sure(ctx, ttl(put(1, "brief", "v"), 50*time.Millisecond))
	for _, h := range c.hosts {
		require.Eventually(t, func() bool {
			st := h.now().Status()
			return len(st.Pools) == 1 && st.Pools[0].Keys == 1 && st.Leader != 0 && len(st.Members) == 3
		}, patience, 5*time.Millisecond, "the brief key is gone everywhere")
		if !h.now().Status().Leading {
			require.ErrorIs(t, h.now().Get(ctx, 1, [][]byte{[]byte("a")})[0].Err, sundog.NotOwner)
			require.ErrorIs(t, h.now().Mutate(ctx, []rpc.Op{put(1, "a", "w")})[0].Err, sundog.NotOwner)
		}
	}
	sum := c.checkEqual(ctx, 1)
	require.EqualValues(t, 1, sum.Keys)
}

// Leaders are killed under load, logs are cut short so that who comes back needs
// a snapshot: nothing acknowledged is lost, all replicas end equal, counters
// counted exactly what was acknowledged or may have been.
func TestKilledLeadersLoseNothing(t *testing.T) {
	c := newCluster(t, func(g *raftgroup.Config) { g.SnapshotBytes, g.TrailingBytes = 64<<10, 1 }, strongPool(1, 0), strongPool(2, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c.leader()
	var acked [4]map[string]sundog.Version
	var counted, maybe atomic.Int64
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range acked {
		acked[w] = map[string]sundog.Version{}
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d/%d", w, n)
				if r := c.mutate(ctx, w, put(1, key, key+strings.Repeat(".", 500))); r.Err == nil {
					acked[w][key] = r.Version
				}
				switch r := c.mutate(ctx, w, incr(2, "n", 1)); {
				case r.Err == nil:
					counted.Add(1)
				case r.Err.Kind == sundog.Unknown:
					maybe.Add(1)
				default:
					t.Errorf("incr: %v", r.Err)
				}
			}
		})
	}
	for round := range 4 {
		before := counted.Load()
		require.Eventually(t, func() bool { return counted.Load() > before+100 }, patience, time.Millisecond, "round %d", round)
		h := c.leader()
		h.down()
		before = counted.Load()
		require.Eventually(t, func() bool { return counted.Load() > before+100 }, patience, time.Millisecond, "round %d without its leader", round)
		h.up()
	}
	close(stop)
	writers.Wait()
	total := 0
	for w := range acked {
		for key, v := range acked[w] {
			got := c.get(ctx, 0, 1, key)
			require.Nil(t, got.Err, key)
			require.Equal(t, rpc.Item{Version: v, Value: []byte(key + strings.Repeat(".", 500))}, got.Item)
			total++
		}
	}
	sum := c.checkEqual(ctx, 1)
	require.GreaterOrEqual(t, sum.Keys, int64(total))
	c.checkEqual(ctx, 2)
	n := c.mutate(ctx, 0, incr(2, "n", 0))
	require.Nil(t, n.Err)
	require.Positive(t, c.installs(), "no replica came back by a snapshot")
	require.GreaterOrEqual(t, n.Int, counted.Load())
	require.LessOrEqual(t, n.Int, counted.Load()+maybe.Load())
	t.Logf("%d puts acknowledged, %d counted, %d unknown", total, counted.Load(), maybe.Load())
}

// All replicas restart at once: from snapshots and logs they are what they were.
func TestRestartOfAll(t *testing.T) {
	c := newCluster(t, nil, strongPool(1, 0))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 50 {
		c.sure(ctx, ttl(put(1, fmt.Sprint(i), "v"), time.Duration(i%2)*time.Hour))
		if i == 25 {
			require.NoError(t, c.leader().now().Group().Snapshot(ctx))
		}
	}
	before := c.checkEqual(ctx, 1)
	highest := c.sure(ctx, put(1, "last", "v"))
	c.sure(ctx, put(1, "last", "w"))
	require.Nil(t, c.mutate(ctx, 0, del(1, "last")).Err)
	for _, h := range c.hosts {
		h.down()
	}
	for _, h := range c.hosts {
		h.up()
	}
	after := c.checkEqual(ctx, 1)
	require.Equal(t, before.Hash, after.Hash)
	require.Equal(t, before.Keys, after.Keys)
	require.Positive(t, c.sure(ctx, put(1, "again", "v")).Compare(highest))
}
