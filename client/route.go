package client

import (
	"math/rand/v2"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// tries is the state of one call's attempts.
type tries struct {
	next   sundog.NodeID          // whom the last answer pointed to; 0: nobody
	avoid  map[sundog.NodeID]bool // did not serve in this call
	asked  int                    // candidates given up, to walk through the owners
	hops   int                    // redirects followed without a pause
	pauses int
	sent   int
	// headless: the last replica that answered knew of no leader that can be reached.
	headless bool
	order    []sundog.NodeID // a route to any node: in which order to ask
}

// shun makes choose prefer others to node from here on.
func (t *tries) shun(node sundog.NodeID) {
	if node == 0 {
		return
	}
	if t.avoid == nil {
		t.avoid = make(map[sundog.NodeID]bool)
	}
	t.avoid[node] = true
}

// route says whom an exchange is for: the leader of a partition, or any node.
type route struct {
	any  bool
	part sundog.Partition
}

// choose says whom to ask now: whom the last answer named, else the leader of
// the view, else the owners in turn (or the nodes, for any of them); those that
// rest, or did not serve in this call, only when there is no other. The error is Stale where
// the map places the partition nowhere.
func (r route) choose(v *ring.View, t *tries, h *health) (ring.Node, *sundog.Error) {
	m := v.Map()
	if n, ok := m.Node(t.next); ok {
		return n, nil
	}
	if leader, ok := v.Leader(r.part); ok && !r.any && !t.avoid[leader] && !h.rests(leader) {
		if n, ok := m.Node(leader); ok {
			return n, nil
		}
	}
	ids := r.candidates(m, t)
	for _, any := range []bool{false, true} {
		for i := range ids {
			id := ids[(t.asked+i)%len(ids)]
			if n, ok := m.Node(id); ok && (any || !t.avoid[id] && !h.rests(id)) {
				return n, nil
			}
		}
		clear(t.avoid)
	}
	err := sundog.Errorf(sundog.Stale, "partition %d is placed on no node yet", r.part)
	err.Epoch = v.Epoch()
	return ring.Node{}, err
}

func (r route) candidates(m *ring.Map, t *tries) []sundog.NodeID {
	if r.any && t.order == nil {
		for _, n := range m.Nodes {
			t.order = append(t.order, n.ID)
		}
		rand.Shuffle(len(t.order), func(i, j int) { t.order[i], t.order[j] = t.order[j], t.order[i] })
	}
	if r.any {
		return t.order
	}
	owners := m.Owners(r.part)
	ids := make([]sundog.NodeID, len(owners))
	for i, o := range owners {
		ids[i] = o.Node
	}
	return ids
}

// change replaces the view by what f makes of it, atomically.
func (c *Client) change(f func(*ring.View) *ring.View) {
	for {
		old := c.view.Load()
		now := f(old)
		if now == old || c.view.CompareAndSwap(old, now) {
			return
		}
	}
}

// hint takes in that an answer named node as the leader of the route's partition. An answer does not
// tell the term, so the leader known until then is withdrawn first.
func (c *Client) hint(r route, node sundog.NodeID) {
	if r.any {
		return
	}
	p := r.part
	c.change(func(v *ring.View) *ring.View {
		old, _ := v.Leader(p)
		return v.WithoutLeader(p, old).WithLeader(p, node, v.Term(p))
	})
}

// doubt takes in that node did not serve as the leader of the route's partition.
func (c *Client) doubt(r route, node sundog.NodeID) {
	if r.any {
		return
	}
	c.change(func(v *ring.View) *ring.View { return v.WithoutLeader(r.part, node) })
}

// adopt takes in a map (nil: ours was current) and what its sender knew of
// leaders. A map older than ours changes nothing.
func (c *Client) adopt(m *ring.Map, leaders []*rpcpb.Leader) {
	before := c.epoch()
	c.change(func(v *ring.View) *ring.View {
		switch {
		case v == nil && m == nil:
			return nil
		case v == nil:
			v = ring.NewView(m)
		case m != nil:
			v = v.WithMap(m)
		}
		for _, l := range leaders {
			if l.GetNode() != 0 && l.GetPartition() < sundog.Slots {
				v = v.WithLeader(sundog.Partition(l.GetPartition()), sundog.NodeID(l.GetNode()), l.GetTerm())
			}
		}
		return v
	})
	if now := c.epoch(); now != before {
		c.log.Debug("cluster map", "epoch", now, "before", before)
	}
}

// observe takes in the epoch that came with an answer: a newer one starts a
// refresh beside the call.
func (c *Client) observe(epoch sundog.Epoch) {
	if epoch > c.epoch() {
		c.startRefresh()
	}
}
