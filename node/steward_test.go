package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// seatAll gives all seats that are to be had and returns who has which.
func seatAll(s *steward, m *ring.Map, now time.Time) map[sundog.NodeID]ring.CatalogRole {
	alive := func(sundog.NodeID) bool { return true }
	for {
		id, role := nextSeat(m, alive, s.awaited(m, now))
		if id == 0 {
			break
		}
		for i := range m.Nodes {
			if m.Nodes[i].ID == id {
				m.Nodes[i].Catalog = role
			}
		}
	}
	roles := map[sundog.NodeID]ring.CatalogRole{}
	for _, n := range m.Nodes {
		if n.Catalog != ring.None {
			roles[n.ID] = n.Catalog
		}
	}
	return roles
}

func mapOf(founders []sundog.NodeID, nodes ...sundog.NodeID) *ring.Map {
	m := &ring.Map{Founders: founders}
	for _, id := range nodes {
		m.Nodes = append(m.Nodes, ring.Node{ID: id})
	}
	return m
}

// TestFounderThatNeverComes: its seat is kept, the others are given after a
// grace; the group never has more than five voters.
func TestFounderThatNeverComes(t *testing.T) {
	const V, S = ring.Voter, ring.Standby
	type roles = map[sundog.NodeID]ring.CatalogRole
	three, five := []sundog.NodeID{1, 2, 3}, []sundog.NodeID{1, 2, 3, 4, 5}
	start := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		m           *ring.Map
		first, then roles
	}{
		"all there":            {mapOf(three, 1, 2, 3, 7), roles{1: V, 2: V, 3: V, 7: V}, roles{1: V, 2: V, 3: V, 7: V}},
		"one of three missing": {mapOf(three, 1, 3, 7, 8, 9), roles{1: V, 3: V}, roles{1: V, 3: V, 7: V, 8: V, 9: S}},
		"one of five missing":  {mapOf(five, 1, 2, 3, 4, 7), roles{1: V, 2: V, 3: V, 4: V}, roles{1: V, 2: V, 3: V, 4: V, 7: S}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &steward{}
			require.Equal(t, test.first, seatAll(s, test.m, start))
			require.Equal(t, test.first, seatAll(s, test.m, start.Add(founderGrace-time.Nanosecond)))
			require.Equal(t, test.then, seatAll(s, test.m, start.Add(founderGrace)))
		})
	}
	// It comes after all: the seat is there.
	s, m := &steward{}, mapOf(five, 1, 2, 3, 4, 7)
	seatAll(s, m, start)
	seatAll(s, m, start.Add(founderGrace))
	m.Nodes = append(m.Nodes[:4:4], ring.Node{ID: 5}, m.Nodes[4])
	require.Equal(t, roles{1: V, 2: V, 3: V, 4: V, 5: V, 7: S}, seatAll(s, m, start.Add(2*founderGrace)))
	// Another leader gives time anew.
	s.missing = nil
	require.True(t, s.awaited(mapOf(three, 1, 2), start.Add(3*founderGrace)))
}
