package founding

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

const (
	clusterF = "0123456789abcdef0123456789abcdef"
	clusterG = "fedcba9876543210fedcba9876543210"
)

func nodes(ids ...sundog.NodeID) []sundog.NodeID { return ids }

// seen are members that all expect n and have no cluster.
func seen(n int, ids ...sundog.NodeID) []Member {
	var out []Member
	for _, id := range ids {
		out = append(out, Member{ID: id, Expect: n})
	}
	return out
}

func of(cluster string, ids ...sundog.NodeID) Founding {
	return Founding{Cluster: cluster, Founder: ids[0], Members: ids, Params: "p"}
}

func knows(self sundog.NodeID, members []Member) Knowledge {
	return Knowledge{Self: self, Expect: 3, Params: "p", Members: members}
}

func TestDecide(t *testing.T) {
	f, own := of(clusterF, 1, 2, 3), of(clusterF, 1, 2, 3)
	for name, c := range map[string]struct {
		k    Knowledge
		step Step
		says string
	}{
		"too few":                    {knows(1, seen(3, 1, 2)), Wait, "2 of 3 nodes seen"},
		"too many":                   {knows(1, seen(3, 1, 2, 3, 4)), Wait, "4 nodes seen"},
		"exactly, lowest":            {knows(1, seen(3, 3, 2, 1)), Propose, ""},
		"the view lacks this node":   {knows(1, seen(3, 3, 2)), Propose, ""},
		"exactly, not lowest":        {knows(2, seen(3, 1, 2, 3)), Wait, "waiting for the lowest node 0000000000000001"},
		"a joiner does not count":    {knows(1, append(seen(3, 1, 2, 3), Member{ID: 9})), Propose, ""},
		"another N does not count":   {knows(1, append(seen(3, 1, 2, 3), Member{ID: 9, Expect: 5})), Propose, ""},
		"a joiner is not enough":     {knows(1, append(seen(3, 1, 2), Member{ID: 9})), Wait, "2 of 3"},
		"a member with a cluster":    {knows(1, append(seen(3, 1, 2, 3), Member{ID: 9, Cluster: clusterG})), Join, ""},
		"heard before":               {Knowledge{Self: 1, Expect: 3, Heard: clusterG, Members: seen(3, 1, 2, 3)}, Join, ""},
		"in a cluster":               {Knowledge{Self: 1, Expect: 3, Cluster: clusterG, Members: seen(3, 1, 2, 3)}, Join, ""},
		"in a cluster, once founder": {Knowledge{Self: 1, Expect: 3, Cluster: clusterF, Accepted: &own, Members: []Member{{ID: 9, Cluster: clusterG}}}, Join, ""},
		"no expect":                  {Knowledge{Self: 1, Members: seen(0, 1, 2, 3)}, Wait, "--bootstrap-expect"},
		"N = 1":                      {Knowledge{Self: 1, Expect: 1}, Propose, ""},
		"accepted another's":         {Knowledge{Self: 2, Expect: 3, Accepted: &f, Members: seen(3, 1, 2, 3)}, Belong, ""},
		"keeps to its word":          {Knowledge{Self: 2, Expect: 3, Accepted: &f, Members: []Member{{ID: 9, Cluster: clusterG}}}, Belong, ""},
		"accepted its own":           {Knowledge{Self: 1, Expect: 3, Accepted: &own}, Resume, ""},
		"its own cluster is heard":   {Knowledge{Self: 1, Expect: 3, Accepted: &own, Members: []Member{{ID: 2, Cluster: clusterF}}}, Resume, ""},
		"another cluster is heard":   {Knowledge{Self: 1, Expect: 3, Accepted: &own, Members: []Member{{ID: 9, Cluster: clusterG}}}, Stuck, clusterG},
		"heard after bootstrapping":  {Knowledge{Self: 1, Expect: 3, Accepted: &own, Bootstrapped: true, Members: []Member{{ID: 9, Cluster: clusterG}}}, Resume, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.k)
			require.Equal(t, c.step, d.Step)
			require.Contains(t, d.Reason, c.says)
			require.Equal(t, c.says == "", d.Reason == "")
			if d.Step == Propose {
				f := d.Founding
				f.Cluster = clusterF
				require.NoError(t, f.Check())
				require.Equal(t, c.k.Self, f.Founder)
				require.Len(t, f.Members, c.k.Expect)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	f, other := of(clusterF, 1, 2, 3), of(clusterG, 1, 2, 3)
	all := seen(3, 1, 2, 3)
	for name, c := range map[string]struct {
		k    Knowledge
		from sundog.NodeID
		ask  Founding
		kind sundog.Kind // 0: accepted
	}{
		"as seen":              {knows(2, all), 1, f, 0},
		"the founder itself":   {knows(1, all), 1, f, 0},
		"again":                {Knowledge{Self: 2, Accepted: &f}, 1, f, 0},
		"again, in it already": {Knowledge{Self: 2, Accepted: &f, Cluster: clusterF}, 1, f, 0},
		"a second":             {Knowledge{Self: 2, Expect: 3, Params: "p", Accepted: &other, Members: all}, 1, f, sundog.Conflict},
		"from another":         {knows(2, all), 3, f, sundog.Invalid},
		"not the lowest":       {knows(2, all), 2, Founding{Cluster: clusterF, Founder: 2, Members: nodes(1, 2, 3), Params: "p"}, sundog.Invalid},
		"not sorted":           {knows(2, all), 1, of(clusterF, 1, 3, 2), sundog.Invalid},
		"no id":                {knows(2, all), 1, of("", 1, 2, 3), sundog.Invalid},
		"sees fewer":           {knows(2, seen(3, 1, 2)), 1, f, sundog.Unavailable},
		"sees more":            {knows(2, seen(3, 1, 2, 3, 4)), 1, f, sundog.Unavailable},
		"sees others":          {knows(2, seen(3, 2, 3, 4)), 1, f, sundog.Unavailable},
		"not in the list":      {knows(4, all), 1, f, sundog.Unavailable},
		"another N":            {Knowledge{Self: 2, Expect: 5, Params: "p", Members: all}, 1, f, sundog.Conflict},
		"no N":                 {Knowledge{Self: 2, Params: "p", Members: all}, 1, f, sundog.Conflict},
		"other parameters":     {Knowledge{Self: 2, Expect: 3, Params: "q", Members: all}, 1, f, sundog.Conflict},
		"in a cluster":         {Knowledge{Self: 2, Expect: 3, Params: "p", Members: all, Cluster: clusterG}, 1, f, sundog.Conflict},
		"heard of one":         {Knowledge{Self: 2, Expect: 3, Params: "p", Members: all, Heard: clusterG}, 1, f, sundog.Conflict},
		"sees one":             {knows(2, append(seen(3, 1, 2, 3), Member{ID: 9, Cluster: clusterG})), 1, f, sundog.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.kind, sundog.KindOf(Judge(c.k, c.from, Ask{Founding: c.ask})))
		})
	}
}

func TestTally(t *testing.T) {
	tally := NewTally(of(clusterF, 1, 2, 3))
	require.Equal(t, nodes(1, 2, 3), tally.Missing())
	tally.Add(2)
	tally.Add(2)
	tally.Add(9)
	require.Equal(t, nodes(1, 3), tally.Missing())
	tally.Add(1)
	tally.Add(3)
	require.Empty(t, tally.Missing())
}
