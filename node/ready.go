package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
)

const (
	probeFresh   = 2 * time.Second // a probe that succeeded since counts
	probeTimeout = time.Second     // of one probe
	readyPoll    = 50 * time.Millisecond
	fewReasons   = 4 // partitions named in a reason before "and N more"
)

// probes commits an entry in each group that this node leads, to learn that it
// still can. It does so only when somebody asks, and not again for a while.
type probes struct {
	hosting *hosting

	turn chan struct{} // holds one token: the right to probe, and to last
	last map[sundog.Partition]time.Time
}

func newProbes(h *hosting) *probes {
	p := &probes{hosting: h, turn: make(chan struct{}, 1), last: map[sundog.Partition]time.Time{}}
	p.turn <- struct{}{}
	return p
}

// run probes the led groups that were not probed lately, and returns those whose
// probe failed. It returns when ctx ends, with all led groups failed where another
// caller was still probing them.
func (p *probes) run(ctx context.Context) map[sundog.Partition]error {
	failed := map[sundog.Partition]error{}
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		err := sundog.Errorf(sundog.Timeout, "another probe is under way: %w", ctx.Err())
		p.hosting.each(func(part sundog.Partition, r *strong.Partition) {
			if r.Group().Status().Leading {
				failed[part] = err
			}
		})
		return failed
	}
	var due []sundog.Partition
	var groups []*raftgroup.Group
	p.hosting.each(func(part sundog.Partition, r *strong.Partition) {
		if time.Since(p.last[part]) > probeFresh && r.Group().Status().Leading {
			due, groups = append(due, part), append(groups, r.Group())
		}
	})
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	errs := make([]error, len(due))
	inParallel(syncWide, len(due), func(i int) { errs[i] = groups[i].Barrier(ctx) })
	for i, part := range due {
		if errs[i] == nil {
			p.last[part] = time.Now()
		} else if sundog.KindOf(errs[i]) != sundog.NotOwner { // it leads no more: its status tells
			failed[part] = errs[i]
		}
	}
	return failed
}

// complaints gathers why a node is not ready.
type complaints struct {
	list  []string
	parts map[string][]sundog.Partition // by what they have in common
	order []string
}

func (c *complaints) add(format string, args ...any) {
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *complaints) partition(p sundog.Partition, what string) {
	if c.parts == nil {
		c.parts = map[string][]sundog.Partition{}
	}
	if len(c.parts[what]) == 0 {
		c.order = append(c.order, what)
	}
	c.parts[what] = append(c.parts[what], p)
}

func (c *complaints) reasons() []string {
	out := c.list
	for _, what := range c.order {
		parts := c.parts[what]
		var names []string
		for _, p := range parts[:min(fewReasons, len(parts))] {
			names = append(names, fmt.Sprint(p))
		}
		line := fmt.Sprintf("partition %s: %s", strings.Join(names, ", "), what)
		if more := len(parts) - len(names); more > 0 {
			line = fmt.Sprintf("partition %s and %d more: %s", strings.Join(names, ", "), more, what)
		}
		out = append(out, line)
	}
	return out
}

// readiness says whether this node is in its cluster, knows the newest map, and
// its groups commit with all their replicas; and if not, why.
func (n *Node) readiness(ctx context.Context) Readiness {
	m := n.atlas.Map()
	r := Readiness{Node: n.dir.ID().String(), Cluster: n.dir.Cluster(), Epoch: uint64(n.atlas.Epoch())}
	var c complaints
	n.complainOfCluster(&c, m)
	if m != nil {
		n.complainOfCatalog(&c, m)
		n.complainOfGroups(ctx, &c, m, &r)
	}
	r.Reasons = c.reasons()
	r.Ready = len(r.Reasons) == 0
	return r
}

func (n *Node) complainOfCluster(c *complaints, m *ring.Map) {
	if n.life.Err() != nil {
		c.add("the node is closing")
	}
	if err := n.registrar.refused.Load(); err != nil {
		c.add("the cluster refuses this node: %s", err.Msg)
	}
	// An explanation only where the own cluster is not to be seen: anybody may
	// gossip at a node whose cluster is well.
	if other := n.members.ForeignCluster(); other != "" && len(n.members.Members()) == 1 && (m == nil || len(m.Nodes) > 1) {
		c.add("members of cluster %s answer at --join, this data directory is of cluster %s: check --join and --data", other, n.cluster())
	}
	if last := n.members.Stats().LastError; last != "" && len(n.members.Members()) == 1 && (m == nil || len(m.Nodes) > 1) {
		c.add("no other node is seen: %s", last)
	}
	switch {
	case m == nil && n.founder.Status() != "":
		c.add("not in a cluster yet: %s", n.founder.Status())
	case m == nil:
		c.add("joining: the cluster's map is not known yet")
	case n.puller.missed() > m.Epoch:
		c.add("the map here is of epoch %d, others speak of %d and none of them answers", m.Epoch, n.puller.missed())
	case !n.registrar.registered(m):
		c.add("the catalog does not know this start of the node yet")
	}
}

// lagLimit is how long a follower may not have heard its leader: heartbeats come
// ten times as often as the timeout.
func lagLimit(t sundog.Timings) time.Duration { return 2 * t.Heartbeat }

func (n *Node) complainOfCatalog(c *complaints, m *ring.Map) {
	self, _ := m.Node(n.dir.ID())
	st, open := n.council.status()
	if err := n.councilErr.Load(); !open && err != nil {
		c.add("the catalog replica does not start: %s", err.Msg)
		return
	}
	switch {
	case !open && self.Catalog != ring.None:
		c.add("the catalog replica is starting")
	case !open:
	case st.Failure != nil:
		c.add("the catalog replica stopped: %v", st.Failure)
	case st.Leader == 0:
		c.add("the catalog has no leader")
	case !st.Leading && (st.LastContact < 0 || st.LastContact > lagLimit(m.Timings)):
		c.add("the catalog's leader was last heard %s ago", st.LastContact.Round(time.Millisecond))
	}
}

func (n *Node) complainOfGroups(ctx context.Context, c *complaints, m *ring.Map, r *Readiness) {
	for p, err := range n.hosting.failures() {
		c.partition(p, "the replica does not start: "+sundog.AsError(err).Msg)
	}
	failed := n.probes.run(ctx)
	for p := range sundog.Partition(len(m.Placement)) {
		if m.Owners(p).Index(n.dir.ID()) < 0 {
			continue
		}
		replica := n.hosting.get(p)
		if replica == nil {
			c.partition(p, "the replica is starting")
			continue
		}
		r.Groups++
		st := replica.Group().Status()
		if st.Leading {
			r.Leaders++
		}
		if why := n.groupTrouble(st, replica.Status().Alarm, m, len(m.Owners(p))); why != "" {
			c.partition(p, why)
		} else if err := failed[p]; err != nil {
			c.partition(p, "the last probe was not committed: "+sundog.KindOf(err).Error())
		}
	}
}

// groupTrouble says what is wrong with a group as its replica here sees it, ""
// for nothing.
func (n *Node) groupTrouble(st raftgroup.Status, alarm string, m *ring.Map, want int) string {
	switch {
	case alarm != "":
		return "the replica stopped: " + alarm
	case st.Leader == 0:
		return "no leader"
	case !st.Leading && (st.LastContact < 0 || st.LastContact > lagLimit(m.Timings)):
		return "the leader is silent"
	case st.Applied < st.Commit:
		return "the replica is catching up"
	case len(st.Members) != want:
		return fmt.Sprintf("%d of %d replicas are members", len(st.Members), want)
	}
	live := 0
	for _, server := range st.Members {
		if r, err := ring.ParseServerID(server); err == nil && n.alive(r.Node) {
			live++
		}
	}
	if live < want {
		return fmt.Sprintf("%d of %d replicas are on live nodes", live, want)
	}
	return ""
}

// Ready says whether the node serves at its full strength, and if not, why.
func (n *Node) Ready() (bool, []string) {
	ctx, cancel := context.WithTimeout(n.life, probeTimeout)
	defer cancel()
	r := n.readiness(ctx)
	return r.Ready, r.Reasons
}

// Wait returns when the node is ready. The error is the cluster's refusal, where
// it refuses this node for good (Conflict, Invalid, Denied), Closed after Close,
// or of the kind of ctx's end with the reasons why it is not ready.
func (n *Node) Wait(ctx context.Context) error {
	for {
		ready, reasons := n.Ready()
		switch {
		case n.life.Err() != nil:
			return sundog.Errorf(sundog.Closed, "the node is closed")
		case ready:
			return nil
		}
		if err := n.registrar.refused.Load(); err != nil {
			return err
		}
		if !wait(ctx, readyPoll) {
			return sundog.Errorf(sundog.KindOf(ctx.Err()), "not ready: %s", strings.Join(reasons, "; "))
		}
	}
}
