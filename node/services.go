package node

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog"
	"github.com/sundog-kv/sundog/node/founding"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// lanePrefix comes before a lane's name in the protocol of its connections.
const lanePrefix = "raft/"

// maxSources bounds whom a node asks in one round for a map or a leader.
const maxSources = 12

// openServices makes what the node does; nothing runs yet.
func (n *Node) openServices() {
	self := n.dir.ID()
	n.puller = newPuller(n.atlas, n.directory, n.sources, n.log)
	n.council = newCouncil(self, n.startGroup, n.offer, n.log)
	n.opened("catalog", n.council.Close)
	n.hosting = newHosting(self, n.atlas, n.dir, n.engines, n.startPartition, n.log)
	n.opened("partitions", n.hosting.Close)
	n.writer = &writer{self: self, council: n.council, directory: n.directory, sources: n.sources}
	n.inspector = &inspector{
		self: self, atlas: n.atlas, council: n.council, hosting: n.hosting, memory: n.memory,
		members: n.members.Members, directory: n.directory,
	}
	n.probes = newProbes(n.hosting)
	n.steward = &steward{
		council: n.council, founding: n.agreed, alive: n.alive, applied: n.catalogApplied, woken: make(chan struct{}, 1), log: n.log,
	}
	n.herald = newHerald(self, n.atlas, n.directory, n.council.leads, n.alive, n.log)
	n.registrar = &registrar{
		dir: n.dir, atlas: n.atlas, writer: n.writer, directory: n.directory, log: n.log,
		self: ring.Node{
			ID: self, Listen: n.addrs.Listen, Gossip: n.addrs.Gossip, HTTP: n.addrs.HTTP,
			Zone: n.cfg.Zone, Weight: 1, Boot: n.dir.Boot(),
		},
	}
	changes, stop := n.members.Watch()
	n.opened("founding's watch", func() error { stop(); return nil })
	n.founder = founding.New(founding.Deps{
		Self: self, Expect: n.cfg.BootstrapExpect, Params: params(n.cfg.Partitions, n.cfg.Timings),
		Members: n.foundingView, Changes: changes, Ask: n.askToFound,
		Store: n.dir, Catalog: foundingCatalog{n}, NewID: newClusterID, Logger: n.log,
		Retry: min(time.Second, n.cfg.Timings.Heartbeat),
	})
	n.metrics.show(n.gauges())
	n.metrics.showGossip(n.members.Stats)
}

// handler wires the methods.
func (n *Node) handler() *handler {
	pools := &poolService{
		atlas: n.atlas, council: n.council, writer: n.writer, puller: n.puller, inspector: n.inspector, alive: n.alive,
	}
	doors := &admission{atlas: n.atlas, council: n.council, writer: n.writer, founder: n.founder, guard: n.guard}
	n.registrar.here = doors.joinHere
	return &handler{
		data:   &dataService{self: n.dir.ID(), atlas: n.atlas, engines: n.engines},
		puller: n.puller, metrics: n.metrics, guard: n.guard,
		controls: map[rpc.Method]control{
			rpc.MethodMap:          typed(n.inspector.mapOf),
			rpc.MethodPoolCreate:   typed(pools.create),
			rpc.MethodPoolSet:      typed(pools.set),
			rpc.MethodPoolDelete:   typed(pools.remove),
			rpc.MethodPoolDescribe: typed(pools.describe),
			rpc.MethodNodes:        typed(n.inspector.nodes),
			rpc.MethodPartitions:   typed(n.inspector.partitions),
			rpc.MethodCheck:        typed(n.inspector.check),
			rpc.MethodFound:        typed(doors.found),
			rpc.MethodJoin:         typed(doors.join),
			rpc.MethodMapPush:      typed(doors.mapPush),
			rpc.MethodStatus:       typed(n.inspector.status),
			rpc.MethodReplicaCheck: typed(n.inspector.replicaCheck),
		},
	}
}

// startGroup opens a Raft group over what all groups of the node share.
func (n *Node) startGroup(cfg raftgroup.Config) (*raftgroup.Group, error) {
	n.share(&cfg)
	return raftgroup.Open(cfg)
}

func (n *Node) startPartition(p sundog.Partition, cfg raftgroup.Config) (*strong.Partition, error) {
	n.share(&cfg)
	return strong.Open(strong.Config{Partition: p, Group: cfg, Arenas: n.arenas, Map: n.atlas.Map, Logger: n.log})
}

func (n *Node) share(cfg *raftgroup.Config) {
	cfg.Store, cfg.Mux, cfg.SnapshotDir = n.store, n.mux, n.dir.Path("snapshots")
	cfg.Clock = func() sundog.Clock { return sundog.ClockAt(time.Now()) }
	cfg.Logger, cfg.Metrics = n.log, n.raft
}

// cluster returns the cluster this node is in or has agreed to found, "" for none.
func (n *Node) cluster() string {
	if c := n.dir.Cluster(); c != "" {
		return c
	}
	f, _ := n.dir.Founding()
	return f.Cluster
}

// identity is what this node says of itself in every handshake.
func (n *Node) identity() rpc.Identity {
	return rpc.Identity{Node: n.dir.ID(), Boot: n.dir.Boot(), Nonce: n.dir.Nonce(), Cluster: n.cluster()}
}

// upgrade hands a connection of another protocol to who speaks it.
func (n *Node) upgrade(protocol string, conn net.Conn, peer rpc.Peer) error {
	lane, ok := strings.CutPrefix(protocol, lanePrefix)
	if !ok {
		return sundog.Errorf(sundog.Invalid, "protocol %.64q is not spoken here", protocol)
	}
	if err := n.guard.vouch(peer); err != nil {
		return err
	}
	return n.mux.Accept(conn, peer.Node, lane)
}

// alive says whether gossip believes a node to be there.
func (n *Node) alive(id sundog.NodeID) bool {
	_, ok := slices.BinarySearchFunc(n.members.Members(), id, func(m membership.Member, id sundog.NodeID) int {
		return cmp.Compare(m.Node, id)
	})
	return ok
}

// sources are nodes to ask for the map or for the catalog's leader: members that
// are in the cluster, the catalog's voters before others, else in random order.
func (n *Node) sources() []sundog.NodeID {
	m := n.atlas.Map()
	var voters, others []sundog.NodeID
	for _, member := range n.members.Members() {
		if member.Node == n.dir.ID() {
			continue
		}
		if m != nil {
			if known, ok := m.Node(member.Node); ok && known.Catalog == ring.Voter {
				voters = append(voters, member.Node)
				continue
			}
		}
		if member.Cluster != "" || n.cluster() != "" {
			others = append(others, member.Node)
		}
	}
	for _, ids := range [][]sundog.NodeID{voters, others} {
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	}
	all := append(voters, others...)
	return all[:min(maxSources, len(all))]
}

// foundingView is the gossip view as founding wants it.
func (n *Node) foundingView() []founding.Member {
	var out []founding.Member
	for _, m := range n.members.Members() {
		out = append(out, founding.Member{ID: m.Node, Expect: m.Expect, Cluster: m.Cluster})
	}
	return out
}

// askToFound asks one node to accept a founding.
func (n *Node) askToFound(ctx context.Context, to sundog.NodeID, ask founding.Ask) error {
	return n.directory.call(ctx, to, rpc.MethodFound, askPB(ask), &rpcpb.FoundReply{})
}

// agreed is the founding this node accepted, as the catalog wants it.
func (n *Node) agreed() (catalog.Founding, bool) {
	f, ok := n.dir.Founding()
	if !ok {
		return catalog.Founding{}, false
	}
	partitions, timings, err := parseParams(f.Params)
	if err != nil {
		n.log.Error("the accepted founding cannot be read", "err", err)
		return catalog.Founding{}, false
	}
	return catalog.Founding{Cluster: f.Cluster, Partitions: partitions, Timings: timings, Founders: f.Members}, true
}

// catalogApplied asks another node how far its replica of the catalog is.
func (n *Node) catalogApplied(ctx context.Context, id sundog.NodeID) (uint64, error) {
	var st rpcpb.StatusReply
	if err := n.directory.call(ctx, id, rpc.MethodStatus, &rpcpb.StatusRequest{}, &st); err != nil {
		return 0, err
	}
	for _, g := range st.GetGroups() {
		if g.GetGroup() == uint32(raftgroup.Catalog) {
			return g.GetApplied(), nil
		}
	}
	return 0, sundog.Errorf(sundog.NotFound, "node %s has no replica of the catalog yet", id)
}

// gauges are what the metrics show of the node's state.
func (n *Node) gauges() gauges {
	sum := func(f func(*strong.Partition) float64) func() float64 {
		return func() (total float64) {
			n.hosting.each(func(_ sundog.Partition, r *strong.Partition) { total += f(r) })
			return total
		}
	}
	return gauges{
		groups: sum(func(*strong.Partition) float64 { return 1 }),
		leaders: sum(func(r *strong.Partition) float64 {
			if r.Group().Status().Leading {
				return 1
			}
			return 0
		}),
		keys: sum(func(r *strong.Partition) (keys float64) {
			for _, p := range r.Status().Pools {
				keys += float64(p.Keys)
			}
			return keys
		}),
		bytes: sum(func(r *strong.Partition) (bytes float64) {
			for _, p := range r.Status().Pools {
				bytes += float64(p.Bytes)
			}
			return bytes
		}),
		members:     func() float64 { return float64(len(n.members.Members())) },
		epoch:       func() float64 { return float64(n.atlas.Epoch()) },
		memoryUsed:  func() float64 { return float64(n.memory.Used()) },
		memoryLimit: func() float64 { return float64(n.memory.Limit()) },
	}
}
