package node

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

// catalogServer is a node's raft server id in the catalog's group. A node holds
// at most one replica of it in the life of its data directory, so there is one
// incarnation.
func catalogServer(id sundog.NodeID) string {
	return ring.Replica{Node: id, Incarnation: 1}.ServerID()
}

// Sizes of the catalog's group (DESIGN section 4).
const (
	maxVoters   = 5
	maxStandbys = 4
)

// council is this node's replica of the catalog's group, when it has one.
type council struct {
	self    sundog.NodeID
	log     *slog.Logger
	start   func(raftgroup.Config) (*raftgroup.Group, error) // fills in what all groups share
	publish func(*ring.Map)

	mu      sync.Mutex // guards the next three; held while the group opens
	group   *raftgroup.Group
	machine *catalog.Machine
	closed  bool

	turned chan struct{} // leadership changed; holds one hint
}

func newCouncil(self sundog.NodeID, start func(raftgroup.Config) (*raftgroup.Group, error), publish func(*ring.Map), log *slog.Logger) *council {
	return &council{self: self, start: start, publish: publish, log: log, turned: make(chan struct{}, 1)}
}

// open starts the replica; again is nil.
func (c *council) open(timings sundog.Timings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return sundog.Errorf(sundog.Closed, "this node is closing")
	}
	if c.group != nil {
		return nil
	}
	machine := catalog.NewMachine(c.publish)
	group, err := c.start(raftgroup.Config{
		ID: raftgroup.Catalog, Self: catalogServer(c.self), Machine: machine, Timings: timings,
		OnLeader: func(leading bool, term uint64) {
			c.log.Info("catalog leadership", "leading", leading, "term", term)
			hint(c.turned)
		},
		OnFailure: func(err error) { c.log.Error("the catalog replica stopped", "err", err) },
	})
	if err != nil {
		return err
	}
	c.group, c.machine = group, machine
	return nil
}

// replica returns the group and its machine, nil where this node has none.
func (c *council) replica() (*raftgroup.Group, *catalog.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.group, c.machine
}

// status returns the replica's status, false where this node has none.
func (c *council) status() (raftgroup.Status, bool) {
	if g, _ := c.replica(); g != nil {
		return g.Status(), true
	}
	return raftgroup.Status{}, false
}

// leads says whether this node leads the catalog, as far as it knows.
func (c *council) leads() bool {
	s, ok := c.status()
	return ok && s.Leading
}

// propose commits a command here. NotOwner, with the leader where it is known,
// when this node does not lead.
func (c *council) propose(ctx context.Context, command []byte) (catalog.Result, error) {
	group, _ := c.replica()
	if group == nil {
		return catalog.Result{}, sundog.Errorf(sundog.NotOwner, "this node has no replica of the catalog")
	}
	out, err := group.Propose(ctx, command)
	if err != nil {
		return catalog.Result{}, err
	}
	result, ok := out.(catalog.Result)
	if !ok {
		return catalog.Result{}, sundog.Errorf(sundog.Internal, "the catalog answered with %T", out)
	}
	if result.Err != nil {
		return result, result.Err
	}
	return result, nil
}

// bootstrap gives the empty group its first voters.
func (c *council) bootstrap(voters []sundog.NodeID) error {
	group, _ := c.replica()
	if group == nil {
		return sundog.Errorf(sundog.Internal, "bootstrap of a catalog that is not open")
	}
	servers := make([]string, len(voters))
	for i, id := range voters {
		servers[i] = catalogServer(id)
	}
	return group.Bootstrap(servers)
}

// Close stops the replica for good.
func (c *council) Close() error {
	c.mu.Lock()
	group := c.group
	c.group, c.closed = nil, true
	c.mu.Unlock()
	if group == nil {
		return nil
	}
	return group.Close()
}

// firstVoters are the founders that found the catalog's group: the first five.
func firstVoters(founders []sundog.NodeID) []sundog.NodeID {
	return founders[:min(maxVoters, len(founders))]
}

// hint leaves one wake-up in a channel of capacity one.
func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting already
	}
}
