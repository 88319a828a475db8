package node

import (
	"context"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/rpc"
)

// runningTimeout is how long an earlier start of a node may take to prove that it
// is there, before a later one is taken for its restart.
const runningTimeout = 2 * time.Second

// guard decides who may speak as which node: no peer of another cluster, no data
// directory that is behind or doubled, and no later start of a node whose earlier
// one still answers, since that is a copy of a directory in use.
type guard struct {
	self     sundog.NodeID
	boot     uint64
	fence    *datadir.PeerFence
	atlas    *atlas
	cluster  func() string
	life     context.Context                                                  // ends with the node
	identify func(context.Context, string, *rpc.DialConfig) (rpc.Peer, error) // who answers at an address
	proved   rpc.DialConfig                                                   // dials as this node, admits anybody

	mu     sync.Mutex // guards the next two
	looks  map[startOf]*look
	copies map[sundog.NodeID]uint64 // start of a copy whose original answered last
}

// startOf is one start of a node.
type startOf struct {
	node sundog.NodeID
	boot uint64
}

// look is one question whether an earlier start is there, shared by all who ask.
type look struct {
	done chan struct{} // closed when err is set
	err  *sundog.Error
}

func newGuard(life context.Context, self sundog.NodeID, boot uint64, fence *datadir.PeerFence, a *atlas, cluster func() string, proved rpc.DialConfig) *guard {
	return &guard{
		self: self, boot: boot, fence: fence, atlas: a, cluster: cluster, life: life, proved: proved, identify: whoAnswers,
		looks: map[startOf]*look{}, copies: map[sundog.NodeID]uint64{},
	}
}

// whoAnswers dials an address, as a client where cfg is nil, and returns who is there.
func whoAnswers(ctx context.Context, addr string, cfg *rpc.DialConfig) (rpc.Peer, error) {
	if cfg == nil {
		cfg = &rpc.DialConfig{}
	}
	conn, err := rpc.Dial(ctx, addr, *cfg)
	if err != nil {
		return rpc.Peer{}, err
	}
	defer conn.Close()
	return conn.Peer(), nil
}

// inbound judges who connects. A node whose data directory is behind or doubled
// is let in as far as to hear so from the catalog: see [guard.vouch].
func (g *guard) inbound(peer rpc.Peer) error {
	if err := g.meet(peer); err != nil {
		return err
	}
	if err := g.vouch(peer); sundog.KindOf(err) != sundog.Conflict {
		return err
	}
	return nil
}

// outbound judges who answers where this node dialled.
func (g *guard) outbound(peer rpc.Peer) error {
	if err := g.meet(peer); err != nil {
		return err
	}
	return g.vouch(peer)
}

// meet refuses other clusters, and copies of a node that runs.
func (g *guard) meet(peer rpc.Peer) error {
	if own := g.cluster(); own != "" && peer.Cluster != "" && own != peer.Cluster {
		return wrongCluster(own, peer.Cluster)
	}
	if !peer.IsNode {
		return nil
	}
	return g.running(peer.Node, peer.Boot)
}

// vouch says whether a peer that is connected may speak as the node it is.
// Whoever may not can still ask who leads the catalog, for the map, and to be
// registered, so that it is the catalog that refuses it.
func (g *guard) vouch(peer rpc.Peer) error {
	if !peer.IsNode {
		return nil
	}
	return g.fence.Check(peer.Node, peer.Boot, peer.Nonce)
}

// open says whether a method is answered to peers that [guard.vouch] refuses.
func (*guard) open(m rpc.Method) bool {
	return m == rpc.MethodStatus || m == rpc.MethodMap || m == rpc.MethodJoin
}

// running refuses (Conflict) a start of a node that has not been met yet while an
// earlier one answers at the address that is registered for it. A node that was
// killed does not answer there, or it is its next start that does.
func (g *guard) running(id sundog.NodeID, boot uint64) error {
	if id == g.self {
		if boot > g.boot {
			return isRunning(id, g.boot, boot, "this address")
		}
		return nil
	}
	m := g.atlas.Map()
	if m == nil {
		return nil
	}
	n, ok := m.Node(id)
	if !ok || n.Listen == "" || n.Boot >= boot {
		return nil
	}
	if known, above := g.fence.Above(id, boot); known > 0 && !above {
		return nil // it was met before, or a later one
	}
	if err := g.share(startOf{id, boot}, n.Listen); err != nil {
		return err
	}
	return nil
}

// share looks once for all who ask at the same time.
func (g *guard) share(s startOf, addr string) *sundog.Error {
	g.mu.Lock()
	l, under := g.looks[s]
	if !under {
		l = &look{done: make(chan struct{})}
		g.looks[s] = l
	}
	g.mu.Unlock()
	if under {
		<-l.done // within runningTimeout
		return l.err
	}
	l.err = g.look(s, addr)
	g.mu.Lock()
	delete(g.looks, s)
	if l.err != nil {
		g.copies[s.node] = s.boot
	} else {
		delete(g.copies, s.node)
	}
	g.mu.Unlock()
	close(l.done)
	return l.err
}

// look asks who answers at the registered address: as a client first, which no
// node has to judge, and as a node, with proof, only where an earlier start
// claims to be there.
func (g *guard) look(s startOf, addr string) *sundog.Error {
	ctx, cancel := context.WithTimeout(g.life, runningTimeout)
	defer cancel()
	earlier := func(p rpc.Peer, err error) bool { return err == nil && p.Node == s.node && p.Boot < s.boot }
	if !earlier(g.identify(ctx, addr, nil)) {
		return nil
	}
	cfg := g.proved
	cfg.Expect = s.node
	there, err := g.identify(ctx, addr, &cfg)
	if !earlier(there, err) || !there.IsNode {
		return nil
	}
	return isRunning(s.node, there.Boot, s.boot, addr)
}

// isCopy says whether a start of a node was refused since an earlier one ran:
// where it gossips to be is not where the node is.
func (g *guard) isCopy(id sundog.NodeID, boot uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return boot != 0 && g.copies[id] == boot
}

func isRunning(id sundog.NodeID, there, boot uint64, addr string) *sundog.Error {
	return sundog.Errorf(sundog.Conflict, "node %s is running: its start %d answers at %s, and this is start %d from a copy of its data directory (cloned?); "+
		"stop it, and start it from an empty directory", id, there, addr, boot)
}
