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
}

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
		if s.council.leads() && !s.step(ctx) {
			again = time.After(pause)
		}
	}
}

// step does what is due and says whether nothing is left.
func (s *steward) step(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stewardStep)
	defer cancel()
	err := s.found(ctx)
	if err == nil {
		err = s.seat(ctx)
	}
	done := false
	if err == nil {
		done, err = s.admit(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Info("catalog duty put off", "err", err)
	}
	return err == nil && done
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

// seat gives roles to live nodes while seats are free: voters first.
func (s *steward) seat(ctx context.Context) error {
	for {
		_, machine := s.council.replica()
		id, role := nextSeat(machine.Map(), s.alive)
		if id == 0 {
			return nil
		}
		if _, err := s.council.propose(ctx, catalog.SetRole(id, role)); err != nil {
			return err
		}
	}
}

// nextSeat picks the next live node without a role and what it is to become;
// 0 when no seat is free or nobody can take it. Founders come first.
func nextSeat(m *ring.Map, alive func(sundog.NodeID) bool) (sundog.NodeID, ring.CatalogRole) {
	if m == nil {
		return 0, ring.None
	}
	voters, standbys := 0, 0
	for _, n := range m.Nodes {
		switch n.Catalog {
		case ring.Voter:
			voters++
		case ring.Standby:
			standbys++
		}
	}
	role := ring.Voter
	if voters >= maxVoters {
		role = ring.Standby
		if standbys >= maxStandbys {
			return 0, ring.None
		}
	}
	// Founders are voters of the group from its first entry: their seats are
	// written down before anybody else's.
	for _, id := range firstVoters(m.Founders) {
		n, ok := m.Node(id)
		if !ok && voters < maxVoters {
			return 0, ring.None // not registered yet; its seat is kept
		}
		if ok && n.Catalog != ring.Voter {
			return id, ring.Voter
		}
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
