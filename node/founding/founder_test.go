package founding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/node/datadir"
)

var _ Store = (*datadir.Dir)(nil)

func TestThreeFound(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(3, 3)
		w.start(1, 3)
		time.Sleep(5 * time.Second)
		require.Empty(t, w.clusters())
		require.Contains(t, w.nodes[1].founder.Status(), "2 of 3 nodes seen")
		w.start(2, 3)
		w.settled(time.Second, 1, 2, 3)
		require.Equal(t, Founded, w.outcomeOf(1).Role)
		require.Equal(t, Enlisted, w.outcomeOf(2).Role)
		require.Empty(t, w.nodes[1].founder.Status())
	})
}

func TestOneFoundsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		begin := time.Now()
		w.start(7, 1)
		<-w.nodes[7].done
		require.Zero(t, time.Since(begin))
		w.settled(0, 7)
		require.Zero(t, w.asks)
	})
}

// notes/schedules.md 15: A sees {A,B,C}, D sees {B,C,D}, expect 3. Whatever B
// and C see, at most one founding completes; when the views agree on three, one
// does.
func TestScheduleOfTwoViews(t *testing.T) {
	const a, b, c, d = 1, 20, 30, 4 // A and D are each the lowest of what they see
	for name, see := range map[string]func(w *world){
		"B and C see everybody":  func(*world) {},
		"B sees A's, C sees D's": func(w *world) { w.see(b, a, b, c); w.see(c, b, c, d) },
		"B and C see A's":        func(w *world) { w.see(b, a, b, c); w.see(c, a, b, c) },
		"B and C see D's":        func(w *world) { w.see(b, b, c, d); w.see(c, b, c, d) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.see(a, a, b, c)
				w.see(d, b, c, d)
				see(w)
				for _, id := range nodes(a, b, c, d) {
					w.start(id, 3)
				}
				time.Sleep(time.Minute)
				require.LessOrEqual(t, len(w.clusters()), 1)
				// The views come together: four where three were expected. A
				// cluster that exists is joined; else an operator stops one.
				for _, id := range nodes(a, b, c, d) {
					w.see(id)
				}
				time.Sleep(time.Minute)
				if len(w.clusters()) == 0 {
					require.Contains(t, w.nodes[a].founder.Status(), "4 nodes seen")
					w.kill(d)
					w.settled(time.Minute, a, b, c)
					w.start(d, 3)
				}
				w.settled(time.Minute, a, b, c, d)
			})
		})
	}
}

// The founder crashes between the acceptances and the bootstrap, or after it
// and before it knows its cluster: it finishes the same founding, also when the
// view has changed and others are away.
func TestFounderCrashes(t *testing.T) {
	for _, point := range []string{"accepted", "bootstrapped"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.start(2, 3)
				w.start(3, 3)
				w.startCrashing(1, 3, point)
				time.Sleep(10 * time.Second)
				agreed, ok := w.nodes[2].disk.Founding()
				require.True(t, ok)
				require.Empty(t, w.nodes[1].disk.Cluster())
				w.kill(1)
				w.start(4, 3) // {2,3,4} would be three, but 2 and 3 gave their word
				time.Sleep(time.Minute)
				if point == "bootstrapped" {
					w.kill(2)
					w.kill(3)
				}
				w.start(1, 3)
				time.Sleep(time.Minute)
				require.Equal(t, []string{agreed.Cluster}, w.clusters())
				require.Equal(t, agreed.Cluster, w.nodes[1].disk.Cluster())
				if point == "bootstrapped" {
					w.start(2, 3)
					w.start(3, 3)
				}
				w.settled(time.Minute, 1, 2, 3, 4)
				w.kill(1) // and once more, when all is done
				w.start(1, 3)
				w.settled(time.Minute, 1, 2, 3, 4)
				require.Equal(t, Joins, w.outcomeOf(1).Role)
			})
		})
	}
}

// A member that accepted restarts while the founder is away: it waits, whatever
// three it sees.
func TestMemberRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(2, 3)
		w.start(3, 3)
		w.startCrashing(1, 3, "accepted")
		time.Sleep(10 * time.Second)
		w.kill(1)
		w.kill(2)
		w.start(4, 3)
		w.start(2, 3)
		time.Sleep(time.Minute)
		require.Empty(t, w.clusters())
		require.Equal(t, Enlisted, w.outcomeOf(2).Role)
		w.start(1, 3)
		w.settled(time.Minute, 1, 2, 3, 4)
		require.Equal(t, Joins, w.outcomeOf(4).Role)
	})
}

// Acceptances count whenever they were given: the members need not be up at the
// same time, once all have seen each other.
func TestAcceptancesOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(2, 3)
		w.start(3, 3)
		w.start(1, 3)
		w.see(3, 3) // not yet
		time.Sleep(5 * time.Second)
		require.Empty(t, w.clusters())
		_, bound := w.nodes[1].disk.Founding()
		require.False(t, bound, "the founder bound itself before all agreed")
		w.see(3)
		w.settled(5*time.Second, 1, 2, 3)
	})
}

func TestMoreThanExpected(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		// All five are in gossip before the first decides.
		w.mu.Lock()
		for _, id := range nodes(1, 2, 3, 4, 5) {
			w.nodes[id] = &node{w: w, id: id, expect: 3, founder: &Founder{}}
		}
		w.mu.Unlock()
		for _, id := range nodes(1, 2, 3, 4, 5) {
			w.start(id, 3)
		}
		time.Sleep(time.Minute)
		require.Empty(t, w.clusters())
		require.Contains(t, w.nodes[1].founder.Status(), "5 nodes seen")
		w.kill(4)
		w.kill(5)
		w.settled(time.Minute, 1, 2, 3)
		w.start(4, 3) // with the flag still set: it joins
		w.settled(time.Minute, 1, 2, 3, 4)
	})
}

// A node started to join arrives while a founding is under way and when it is
// done: it does not disturb, and is never a founder.
func TestJoinerMidway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(1, 3)
		w.start(9, 0)
		w.start(2, 3)
		time.Sleep(5 * time.Second)
		require.Contains(t, w.nodes[9].founder.Status(), "--join")
		w.start(3, 3)
		w.settled(10*time.Second, 1, 2, 3, 9)
		require.Equal(t, Joins, w.outcomeOf(9).Role)
	})
}

// A member of an old cluster appears: nobody founds, now or after it is gone.
func TestOldClusterAppears(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(1, 3)
		w.start(2, 3)
		old := w.start(50, 0)
		w.kill(50)
		old.disk.belong(clusterG)
		w.start(50, 0)
		time.Sleep(5 * time.Second)
		w.kill(50)
		w.kill(1)
		w.kill(2)
		for _, id := range nodes(1, 2, 3) {
			w.start(id, 3)
		}
		time.Sleep(time.Minute)
		require.Empty(t, w.clusters())
		require.Equal(t, Outcome{Role: Joins, Cluster: clusterG}, w.outcomeOf(1))
		require.Contains(t, w.nodes[3].founder.Status(), "waiting for the lowest")
	})
}

// A founder half-way that hears of another cluster asks no more and says so.
func TestFounderHearsOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(2, 3)
		w.start(3, 3)
		w.startCrashing(1, 3, "accepted")
		time.Sleep(10 * time.Second)
		w.kill(1)
		old := w.start(50, 0)
		w.kill(50)
		old.disk.belong(clusterG)
		w.start(50, 0)
		w.start(1, 3)
		time.Sleep(time.Minute)
		require.Empty(t, w.clusters())
		require.Contains(t, w.nodes[1].founder.Status(), clusterG)
		require.Contains(t, w.nodes[1].founder.Status(), "empty data directory")
	})
}

// Over the real directory: the second Open finishes what the first began.
func TestOverDataDir(t *testing.T) {
	path := t.TempDir()
	dir, err := datadir.Open(path, time.Unix(0, 0))
	require.NoError(t, err)
	deps := Deps{Self: dir.ID(), Expect: 1, Params: "p", Members: func() []Member { return nil }, Changes: make(chan struct{}),
		Store: dir, Catalog: &node{w: newWorld(t), crash: "accepted"}, NewID: func() string { return clusterF }}
	_, err = New(deps).Run(t.Context())
	require.Error(t, err)
	require.NoError(t, dir.Close())

	dir, err = datadir.Open(path, time.Unix(0, 0))
	require.NoError(t, err)
	defer dir.Close()
	deps.Store, deps.Catalog = dir, &node{w: newWorld(t)}
	deps.NewID = func() string { return clusterG }
	outcome, err := New(deps).Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Founded, outcome.Role)
	require.Equal(t, clusterF, outcome.Cluster)
	require.Equal(t, clusterF, dir.Cluster())
}
