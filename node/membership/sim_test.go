package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// CASE 21, first half: twelve nodes, all stopped without a word and started at
// once on new addresses, with nothing but two seeds' addresses in common.
func TestAllRestartAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		const n = 12
		var members []*Membership
		full := func() bool {
			return !slices.ContainsFunc(members, func(m *Membership) bool { return len(m.Members()) != n })
		}
		for id := 1; id <= n; id++ {
			members = append(members, s.start(id, 1, 1, 2))
		}
		s.within(30*time.Second, "first full view", full)
		for _, m := range members {
			require.NoError(t, m.Kill())
		}
		members = members[:0]
		for id := 1; id <= n; id++ {
			addr := simAddr(id) // the seeds keep their place, all others move
			if id > 2 {
				addr = simAddr(100 + id)
			}
			members = append(members, s.startAt(id, 2, addr, 1, 2))
		}
		took := s.within(30*time.Second, "full view after the restart", full)
		t.Logf("full view of %d everywhere after %v", n, took)
		closeAll(members)
	})
}

// CASE 21, second half: 500 fresh names join and leave in batches. The twelve
// that stay see each other throughout, the whole view while a batch is there,
// and forget the names afterwards.
func TestFreshNamesJoinAndLeave(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		const stay, batch = 12, 50
		fresh := 500
		if underRace {
			fresh = 100
		}
		var members []*Membership
		sees := func(n int) func() bool {
			return func() bool {
				return !slices.ContainsFunc(members, func(m *Membership) bool { return len(m.Members()) != n })
			}
		}
		for id := 1; id <= stay; id++ {
			members = append(members, s.start(id, 1, 1, 2))
		}
		s.within(30*time.Second, "full view", sees(stay))
		base := s.exchangeSize(members[0])
		require.Greater(t, base, stay*20, "the exchange was not answered")
		for first := 0; first < fresh; first += batch {
			var guests []*Membership
			for i := range batch {
				guests = append(guests, s.start(1000+first+i, 1, 1, 2))
			}
			s.within(30*time.Second, "view with the guests", sees(stay+batch))
			closeAll(guests)
			s.within(30*time.Second, "view without the guests", sees(stay))
		}
		time.Sleep(LAN().Forget + 2*time.Minute) // reaped when a probe round wraps around
		require.True(t, sees(stay)())
		for _, m := range members {
			require.LessOrEqual(t, m.lib.NumMembers(), stay)
		}
		require.InDelta(t, base, s.exchangeSize(members[0]), float64(base)/4, "left entries are still carried in full exchanges")
		closeAll(members)
	})
}

// CASE 25: one dies and another starts in the same instant, whose seeds are the
// dead one, a stopped one, and a living one.
func TestJoinBesideTheDeadAndTheStopped(t *testing.T) {
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *sim) {
				members := []*Membership{s.start(1, 1, 1, 2, 3), s.start(2, 1, 1, 2, 3), s.start(3, 1, 1, 2, 3), s.start(4, 1, 1, 2, 3)}
				s.within(30*time.Second, "full view", func() bool { return len(members[0].Members()) == 4 && len(members[3].Members()) == 4 })
				if how == "killed" {
					require.NoError(t, members[0].Kill())
				} else {
					s.net.Freeze(simAddr(1))
				}
				newcomer := s.start(5, 1, 1, 3)
				took := s.within(10*time.Second, "the newcomer is seen and sees", func() bool {
					for _, m := range append(members[1:4:4], newcomer) {
						view := ids(m)
						if !slices.Contains(view, 5) || !slices.Contains(view, 2) {
							return false
						}
					}
					return true
				})
				t.Logf("joined after %v", took)
				s.within(2*time.Minute, "the lost one is given up", func() bool { return !slices.Contains(ids(newcomer), 1) })
				var suspected, failed uint64
				for _, m := range append(members[1:4:4], newcomer) {
					suspected += m.Stats().Suspected
					failed += m.Stats().Failed
				}
				require.NotZero(t, suspected)
				require.NotZero(t, failed)
				s.net.Thaw(simAddr(1))
				if how == "stopped" {
					s.within(time.Minute, "the stopped one is back", func() bool { return slices.Contains(ids(newcomer), 1) })
					require.NotZero(t, members[0].Stats().Refuted)
				}
				closeAll(append(members, newcomer))
			})
		})
	}
}

// Two halves of a network that have forgotten each other meet again.
func TestPartitionHeals(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		members := []*Membership{s.start(1, 1), s.start(2, 1, 1), s.start(3, 1, 1), s.start(4, 1, 1)}
		full := func() bool {
			return !slices.ContainsFunc(members, func(m *Membership) bool { return len(m.Members()) != 4 })
		}
		s.within(30*time.Second, "full view", full)
		for _, a := range []int{1, 2} {
			for _, b := range []int{3, 4} {
				s.net.Cut(simAddr(a), simAddr(b))
			}
		}
		s.within(2*time.Minute, "halves", func() bool { return len(members[0].Members()) == 2 && len(members[3].Members()) == 2 })
		time.Sleep(5 * time.Minute) // the library has forgotten the other half
		for _, a := range []int{1, 2} {
			for _, b := range []int{3, 4} {
				s.net.Heal(simAddr(a), simAddr(b))
			}
		}
		s.within(time.Minute, "whole again", full)
		closeAll(members)
	})
}

// One restart on another address is admitted at once, while the others still
// take its earlier boot for alive.
func TestRestartElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		members := []*Membership{s.start(1, 1, 1), s.start(2, 1, 1), s.start(3, 7, 1)}
		s.within(30*time.Second, "full view", func() bool { return len(members[0].Members()) == 3 && len(members[1].Members()) == 3 })
		require.NoError(t, members[2].Kill())
		members[2] = s.startAt(3, 8, simAddr(200), 1)
		sees := func() bool {
			for _, m := range members {
				i := slices.IndexFunc(m.Members(), func(member Member) bool { return member.Node == 3 })
				if i < 0 || m.Members()[i].Boot != 8 || m.Members()[i].Gossip != simAddr(200) || len(m.Members()) != 3 {
					return false
				}
			}
			return true
		}
		took := s.within(5*time.Second, "the new boot", sees)
		t.Logf("healed after %v", took)
		for range 100 { // the death of the old name changes nothing
			time.Sleep(500 * time.Millisecond)
			require.True(t, sees())
		}
		require.NoError(t, members[2].Doubled())
		closeAll(members)
	})
}

// A cloned directory shows up at both processes; so does a restored one.
func TestDoubled(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		a := s.start(1, 1)
		b, clone := s.start(2, 5, 1), s.startAt(2, 5, simAddr(201), 1)
		// Both may be admitted in the same instant; then the next full exchange tells.
		s.within(3*time.Minute, "the clone is noticed", func() bool { return b.Doubled() != nil || clone.Doubled() != nil })
		require.NotZero(t, a.Stats().Conflicts)
		older := s.startAt(2, 4, simAddr(202), 1)
		s.within(30*time.Second, "the restored one knows", func() bool { return older.Doubled() != nil })
		require.ErrorContains(t, older.Doubled(), "cloned or restored")
		require.Len(t, a.Members(), 2)
		closeAll([]*Membership{a, b, clone, older})
	})
}

// Nodes of another cluster are left out, whenever it is that they get one.
func TestForeignCluster(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		a, b, c := s.start(1, 1), s.start(2, 1, 1), s.start(3, 1, 1)
		full := func(n int, all ...*Membership) func() bool {
			return func() bool {
				return !slices.ContainsFunc(all, func(m *Membership) bool { return len(m.Members()) != n })
			}
		}
		s.within(30*time.Second, "full view", full(3, a, b, c))
		require.NoError(t, a.SetCluster(clusterA))
		require.NoError(t, b.SetCluster(clusterA))
		require.NoError(t, c.SetCluster(clusterB))
		require.Error(t, c.SetCluster("x"))
		s.within(10*time.Second, "apart", func() bool { return full(2, a, b)() && full(1, c)() })
		d := s.start(4, 1, 1) // without a cluster: sees all, is seen by all
		s.within(10*time.Second, "the newcomer", func() bool { return full(3, a, b)() && len(d.Members()) >= 3 })
		tr, err := s.net.Listen(simAddr(5))
		require.NoError(t, err)
		self := meta(5, 1)
		self.Cluster = clusterB
		e, err := Open(t.Context(), Config{Self: self, Transport: tr, Seeds: []string{simAddr(1)}})
		require.NoError(t, err)
		s.within(30*time.Second, "counted", func() bool { return a.Stats().Foreign > 0 })
		require.NotContains(t, ids(a), 5)
		require.Equal(t, clusterB, a.ForeignCluster())
		require.Equal(t, clusterA, e.ForeignCluster())
		require.Empty(t, d.ForeignCluster())
		closeAll([]*Membership{a, b, c, d, e})
	})
}

// Epochs spread, fall never, and many changes are few messages.
func TestEpochsSpread(t *testing.T) {
	bubble(t, func(t *testing.T, s *sim) {
		a, b := s.start(1, 1), s.start(2, 1, 1)
		s.within(30*time.Second, "full view", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
		watch, cancel := b.Watch()
		<-b.Changes()
		for e := range 1000 {
			a.SetEpoch(sundog.Epoch(e + 1))
		}
		a.SetEpoch(7)
		s.within(5*time.Second, "the newest epoch", func() bool { return b.Members()[0].Epoch == 1000 })
		<-b.Changes()
		<-watch
		cancel()
		require.EqualValues(t, 1000, a.Members()[0].Epoch)
		closeAll([]*Membership{a, b})
	})
}
