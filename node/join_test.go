package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// TestFoundingWithoutOne: two of three wait; the third may be late.
func TestFoundingWithoutOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(0)
	c.start(1)
	c.eventually("they say what they wait for", func() bool {
		_, why := c.nodes[0].Ready()
		return strings.Contains(strings.Join(why, " "), "2 of 3 nodes seen")
	})
	require.Nil(t, c.nodes[0].atlas.Map())
	c.start(2)
	c.ready()
	require.Len(t, c.view().Nodes, 3)
}

// TestJoin: more nodes join, become voters up to five, standbys after.
func TestJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 7, func(i int, cfg *Config) {
		cfg.BootstrapExpect = 0
		if i == 0 {
			cfg.BootstrapExpect = 1
		}
	})
	c.startAll()
	c.ready()
	c.eventually("all have their seats", func() bool {
		st, ok := c.nodes[0].council.status()
		return ok && len(st.Members) == 5 && len(st.Learners) == 2
	})
	m := c.view()
	require.Len(t, m.Nodes, 7)
	require.NoError(t, c.createPool(c.nodes[6], "p", 3))
	cl := c.client("p")
	cl.fill(0, 20)
	cl.verify(20)
}

// TestNextSeat: founders first, then live nodes, five voters, four standbys.
func TestNextSeat(t *testing.T) {
	t.Parallel()
	m := &ring.Map{Founders: []sundog.NodeID{1, 2}}
	alive := func(id sundog.NodeID) bool { return id != 4 }
	id, _ := nextSeat(m, alive, true)
	require.Zero(t, id, "the founders' seats are kept")
	for i := range sundog.NodeID(12) {
		m.Nodes = append(m.Nodes, ring.Node{ID: i + 1})
	}
	var order []string
	for {
		id, role := nextSeat(m, alive, len(absent(m)) > 0)
		if id == 0 {
			break
		}
		order = append(order, fmt.Sprintf("%d %s", id, role))
		m.Nodes[id-1].Catalog = role
	}
	require.Equal(t, []string{
		"1 voter", "2 voter", "3 voter", "5 voter", "6 voter", "7 standby", "8 standby", "9 standby", "10 standby",
	}, order)
}

// TestReplaceWhileOneIsDead is CASE 25: a node is killed and at once another
// joins.
func TestReplaceWhileOneIsDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, func(i int, cfg *Config) {
		if cfg.BootstrapExpect = 3; i == 3 {
			cfg.BootstrapExpect = 0
		}
	})
	for i := range 3 {
		c.start(i)
	}
	c.ready()
	c.kill(1)
	began := time.Now()
	late := c.start(3)
	c.eventually("it is in", func() bool {
		m := late.atlas.Map()
		return m != nil && late.registrar.registered(m)
	})
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestCreateAtOnce: a pool asked for before the cluster is founded waits for all
// founders.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.startAll()
	require.NoError(t, c.createPool(c.nodes[0], "p", 3))
	for _, r := range c.view().Placement {
		require.Len(t, r, 3)
	}
	c.ready()
}

// TestCreateWhileTheLeaderIsGone: a pool asked for right after the catalog's
// leader was killed is made by the next one.
func TestCreateWhileTheLeaderIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, func(i int, cfg *Config) {
		if cfg.BootstrapExpect = 3; i == 3 {
			cfg.BootstrapExpect = 0
		}
	})
	c.startAll()
	c.ready()
	for i, n := range c.nodes {
		if n.council.leads() {
			c.kill(i)
			break
		}
	}
	require.NoError(t, c.createPool(c.someNode(), "p", 3))
	cl := c.client("p")
	cl.fill(0, 5)
	cl.verify(5)
	require.Equal(t, sundog.Exists, sundog.KindOf(c.createPool(c.someNode(), "p", 3)))
}
