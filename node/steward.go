package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

// steward does the duties of the catalog's leader, on every node that may become
// it: it writes the founding into the log, gives seats in the catalog's group to
// nodes that join, and carries them out in the group, one at a time.
type steward struct {
	council  *council
	founding func() (catalog.Founding, bool) // what the founders agreed on
	alive    func(sundog.NodeID) bool
	applied  func(context.Context, sundog.NodeID) (uint64, error) // another replica's progress in the catalog
	woken    chan struct{}                                        // members or map changed; holds one hint
	log      *slog.Logger

	missing map[sundog.NodeID]time.Time // founders that are not registered, since when this leader knows
}

// founderGrace is how long the seats that nobody has are kept back for a founder
// that is not registered yet.
const founderGrace = 60 * time.Second

// stewardStep bounds one duty, so that one silent node holds up no other.
const stewardStep = 5 * time.Second

// run works until ctx ends: on every hint, and again after a pause while
// something is left to do.
func (s *steward) run(ctx context.Context, pause time.Duration) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.council.turned:
		case <-s.woken:
		case <-again:
		}
		again = nil
		if !s.council.leads() {
			s.missing = nil // who leads next gives them time anew
		} else if !s.step(ctx) {
			again = time.After(pause)
		}
	}
}

// step does what is due and says whether nothing is left.
func (s *steward) step(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stewardStep)
	defer cancel()
	err := s.found(ctx)
	seated, done := false, false
	if err == nil {
		seated, err = s.seat(ctx)
	}
	if err == nil {
		done, err = s.admit(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Info("catalog duty put off", "err", err)
	}
	return err == nil && seated && done
}

// found writes the founding as the log's first command.
func (s *steward) found(ctx context.Context) error {
	if _, m := s.council.replica(); m.Map() != nil {
		return nil
	}
	f, ok := s.founding()
	if !ok {
		return sundog.Errorf(sundog.Internal, "this node leads a catalog that it has no founding of")
	}
	_, err := s.council.propose(ctx, catalog.Found(f))
	return err
}

// seat gives roles to live nodes while seats are free: voters first. It says
// whether nobody is waited for.
func (s *steward) seat(ctx context.Context) (bool, error) {
	for {
		_, machine := s.council.replica()
		m := machine.Map()
		waiting := s.awaited(m, time.Now())
		id, role := nextSeat(m, s.alive, waiting)
		if id == 0 {
			return !waiting, nil
		}
		if _, err := s.council.propose(ctx, catalog.SetRole(id, role)); err != nil {
			return false, err
		}
	}
}

// awaited says whether a first voter is not registered and within its grace.
func (s *steward) awaited(m *ring.Map, now time.Time) (waiting bool) {
	if s.missing == nil {
		s.missing = map[sundog.NodeID]time.Time{}
	}
	for _, id := range absent(m) {
		since, known := s.missing[id]
		if !known {
			since = now
			s.missing[id] = now
		}
		waiting = waiting || now.Sub(since) < founderGrace
	}
	return waiting
}

// absent are the first voters that are not in the map.
func absent(m *ring.Map) (ids []sundog.NodeID) {
	if m == nil {
		return nil
	}
	for _, id := range firstVoters(m.Founders) {
		if _, ok := m.Node(id); !ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// nextSeat picks the next live node without a role and what it is to become;
// 0 when no seat is free or nobody can take it. Founders come first: they are
// voters of the group from its first entry. While waiting nobody else gets a
// seat; after that the seat of a founder that never came stays its own, since it
// votes in the group, and only the others are given.
func nextSeat(m *ring.Map, alive func(sundog.NodeID) bool, waiting bool) (sundog.NodeID, ring.CatalogRole) {
	if m == nil {
		return 0, ring.None
	}
	voters, standbys := len(absent(m)), 0
	for _, n := range m.Nodes {
		switch n.Catalog {
		case ring.Voter:
			voters++
		case ring.Standby:
			standbys++
		}
	}
	for _, id := range firstVoters(m.Founders) {
		if n, ok := m.Node(id); ok && n.Catalog != ring.Voter {
			return id, ring.Voter
		}
	}
	role := ring.Voter
	if voters >= maxVoters {
		role = ring.Standby
	}
	if waiting || role == ring.Standby && standbys >= maxStandbys {
		return 0, ring.None
	}
	for _, n := range m.Nodes {
		if n.Catalog == ring.None && alive(n.ID) {
			return n.ID, role
		}
	}
	return 0, ring.None
}

// admit carries out one seat in the group: a learner first, a voter when it has
// caught up, so that a new voter never takes the group below its majority. It
// says whether nothing is left.
func (s *steward) admit(ctx context.Context) (bool, error) {
	group, machine := s.council.replica()
	m, st := machine.Map(), group.Status()
	done := true
	for _, n := range m.Nodes {
		server := catalogServer(n.ID)
		switch {
		case n.Catalog == ring.None || slices.Contains(st.Members, server):
		case !s.alive(n.ID):
			done = false
		case !slices.Contains(st.Learners, server):
			return false, group.AddNonvoter(ctx, server, st.ConfigIndex)
		case n.Catalog == ring.Voter:
			if done = false; s.caughtUp(ctx, n.ID, st) {
				return false, group.AddVoter(ctx, server, st.ConfigIndex)
			}
		}
	}
	return done, nil
}

// caughtUp says whether a learner has applied all that was committed when st was
// taken.
func (s *steward) caughtUp(ctx context.Context, id sundog.NodeID, st raftgroup.Status) bool {
	applied, err := s.applied(ctx, id)
	return err == nil && applied >= st.Commit
}
