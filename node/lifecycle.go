package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/node/founding"
	"github.com/sundog-kv/sundog/ring"
)

// peersRest is the shortest time between two writes of the peers file.
const peersRest = 2 * time.Second

// startLoops starts all that the node does by itself. A node that was in a
// cluster before begins with the map it saved.
func (n *Node) startLoops() error {
	if err := n.loadMap(); err != nil {
		return err
	}
	n.loops.Go(func() { n.puller.run(n.life) })
	n.loops.Go(func() { n.hosting.run(n.life) })
	n.loops.Go(func() { n.hosting.sync(n.life) })
	n.loops.Go(func() { n.steward.run(n.life, n.cfg.Timings.Heartbeat/2) })
	n.loops.Go(func() { n.herald.run(n.life) })
	n.loops.Go(func() { n.followMap(n.life) })
	n.loops.Go(func() { n.followMembers(n.life) })
	n.loops.Go(func() { n.enter(n.life) })
	// The farewell is the first thing that Close does after the loops: the others
	// learn that this is no crash.
	n.opened("farewell", func() error {
		if n.leave {
			return n.members.Close()
		}
		return n.members.Kill()
	})
	return nil
}

// loadMap takes the map that was saved. A damaged one is only a copy.
func (n *Node) loadMap() error {
	data, err := n.dir.LoadMap()
	if sundog.KindOf(err) == sundog.NotFound {
		return nil
	}
	var m *ring.Map
	if err == nil {
		m, err = ring.UnmarshalMap(data)
	}
	if err != nil {
		n.log.Warn("the saved map cannot be read; another node has it", "err", err)
		return nil
	}
	_, err = n.atlas.Offer(m)
	return err
}

// bind makes this node one of a cluster, for ever, before it takes its map.
func (n *Node) bind(cluster string) error {
	if err := n.dir.SetCluster(cluster); err != nil {
		return err
	}
	return n.members.SetCluster(cluster)
}

// offer takes a map that the own catalog replica applied.
func (n *Node) offer(m *ring.Map) {
	if _, err := n.atlas.Offer(m); err != nil {
		n.log.Error("the catalog's map is refused", "err", err)
	}
}

// enter founds or finds the cluster, then keeps this node registered in it.
func (n *Node) enter(ctx context.Context) {
	outcome, err := n.founder.Run(ctx)
	if err != nil {
		if ctx.Err() == nil {
			n.log.Error("founding failed", "err", err)
			n.registrar.refused.Store(sundog.AsError(err))
		}
		return
	}
	n.log.Info("cluster found", "cluster", outcome.Cluster, "role", outcome.Role.String())
	_ = n.joinCouncil() // logged, shown by readiness, tried again at each map
	n.registrar.run(ctx)
}

// joinCouncil opens the replica of the catalog that this node is meant to have:
// as one of the first founders, or by its role in the map.
func (n *Node) joinCouncil() error {
	var err error
	if f, ok := n.agreed(); ok && slices.Contains(firstVoters(f.Founders), n.dir.ID()) {
		err = n.council.open(f.Timings)
	} else if m := n.atlas.Map(); m != nil {
		if self, ok := m.Node(n.dir.ID()); ok && self.Catalog != ring.None {
			err = n.council.open(m.Timings)
		}
	}
	n.councilErr.Store(sundog.AsError(err))
	if err != nil {
		n.log.Error("the catalog replica does not open", "err", err)
	}
	return err
}

// followMap acts on each new map: the seat in the catalog, what gossip tells,
// the fence, and the copy on disk.
func (n *Node) followMap(ctx context.Context) {
	for {
		changed := n.atlas.Changed()
		if m := n.atlas.Map(); m != nil {
			_ = n.joinCouncil() // logged; tried again at the next map
			n.members.SetEpoch(m.Epoch)
			for _, node := range m.Nodes {
				n.fence.Raise(node.ID, node.Boot)
			}
			if _, data, err := n.atlas.Encoded(); err != nil {
				n.log.Error("map not encoded", "err", err)
			} else if err := n.dir.SaveMap(data); err != nil {
				n.log.Error("map not saved", "err", err)
			}
			hint(n.steward.woken)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// followMembers acts on each change of the gossip view: newer maps, the
// steward's duties, the peers to look for after a restart.
func (n *Node) followMembers(ctx context.Context) {
	var saved []datadir.Peer
	var due <-chan time.Time
	warned := false
	for {
		// Only a hint: anybody can say anything in gossip. The clone is refused
		// in the handshakes.
		if err := n.members.Doubled(); err != nil && !warned {
			n.log.Warn("another process may run from a copy of this data directory", "err", err)
			warned = true
		}
		for _, m := range n.members.Members() {
			n.puller.hear(m.Epoch)
		}
		hint(n.steward.woken)
		if due == nil {
			due = time.After(peersRest)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.members.Changes():
		case <-due:
			due = nil
			saved = n.savePeers(saved)
			select { // nothing else is due until the view changes
			case <-ctx.Done():
				return
			case <-n.members.Changes():
			}
		}
	}
}

// savePeers writes the gossip peers where they differ from what was saved.
func (n *Node) savePeers(saved []datadir.Peer) []datadir.Peer {
	var peers []datadir.Peer
	for _, m := range n.members.Members() {
		if m.Node != n.dir.ID() {
			peers = append(peers, datadir.Peer{Node: m.Node, Gossip: m.Gossip})
		}
	}
	if len(peers) == 0 || slices.Equal(peers, saved) {
		return saved
	}
	if err := n.dir.SavePeers(peers); err != nil {
		n.log.Warn("peers not saved", "err", err)
		return saved
	}
	return peers
}

// knownPeers are addresses to look for the others at, beside the seeds.
func (n *Node) knownPeers() []string {
	peers, err := n.dir.LoadPeers()
	if err != nil {
		n.log.Warn("saved peers not read", "err", err)
	}
	var addrs []string
	for _, p := range peers {
		addrs = append(addrs, p.Gossip)
	}
	if m := n.atlas.Map(); m != nil {
		for _, node := range m.Nodes {
			if node.ID != n.dir.ID() && node.Gossip != "" {
				addrs = append(addrs, node.Gossip)
			}
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// foundingCatalog is the catalog as the founder bootstraps it.
type foundingCatalog struct{ n *Node }

// Bootstrapped implements [founding.Catalog].
func (c foundingCatalog) Bootstrapped(founding.Founding) (bool, error) {
	if err := c.n.joinCouncil(); err != nil {
		return false, err
	}
	st, ok := c.n.council.status()
	return ok && st.LastIndex > 0, nil
}

// Bootstrap implements [founding.Catalog].
func (c foundingCatalog) Bootstrap(_ context.Context, f founding.Founding) error {
	if err := c.n.joinCouncil(); err != nil {
		return err
	}
	return c.n.council.bootstrap(firstVoters(f.Members))
}

func newClusterID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
