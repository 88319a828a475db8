package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/node/founding"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// Pace of registration.
const (
	registerTimeout  = 5 * time.Second
	registerPauseMin = 100 * time.Millisecond
	registerPauseMax = 5 * time.Second
)

// registrar keeps the catalog's record of this node true: it joins with it, and
// renews addresses and boot counter after a restart.
type registrar struct {
	self      ring.Node // as it is now
	dir       *datadir.Dir
	atlas     *atlas
	writer    *writer
	directory *directory
	log       *slog.Logger
	taken     bool // this start was registered; of run alone

	here    func(context.Context, *rpcpb.JoinRequest) (*rpcpb.JoinReply, error) // as the leader
	refused atomic.Pointer[sundog.Error]                                        // for good, as far as this node can tell
}

// run registers whenever the map's record of this node differs, until ctx ends.
func (r *registrar) run(ctx context.Context) {
	pause := registerPauseMin
	for {
		changed := r.atlas.Changed()
		var again <-chan time.Time
		if !r.registered(r.atlas.Map()) {
			if err := r.register(ctx); err != nil {
				r.note(ctx, err)
				again = time.After(pause)
				pause = min(2*pause, registerPauseMax)
			}
		} else {
			pause = registerPauseMin
			r.admitted()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// registered says whether the map knows this node as it is.
func (r *registrar) registered(m *ring.Map) bool {
	if m == nil {
		return false
	}
	n, ok := m.Node(r.self.ID)
	n.Catalog = r.self.Catalog
	return ok && n == r.self
}

func (r *registrar) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	req := &rpcpb.JoinRequest{Node: nodePB(r.self), Nonce: r.dir.Nonce()}
	forward := &rpcpb.JoinRequest{Node: req.GetNode(), Nonce: r.dir.Nonce(), Forwarded: true}
	reply := &rpcpb.JoinReply{}
	err := r.writer.do(ctx, false, catalogWrite{
		method: rpc.MethodJoin, req: forward, reply: reply, relay: req, again: true,
		here: func(ctx context.Context) error {
			made, err := r.here(ctx, req)
			if err == nil {
				reply = made
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	m, err := ring.UnmarshalMap(reply.GetMap())
	if err == nil {
		_, err = r.atlas.Offer(m)
	}
	return err
}

// admitted notes that the cluster has registered this start.
func (r *registrar) admitted() {
	r.taken = true
	r.refused.Store(nil)
	if err := r.dir.NoteAdmission(); err != nil {
		r.log.Error("admission not noted", "err", err)
	}
}

// note keeps a refusal that time will not heal, for readiness and Wait, and on
// disk what a later start has to know of it (fenced.go).
func (r *registrar) note(ctx context.Context, err error) {
	if !refused(err) {
		r.log.Debug("not registered yet", "err", err)
		return
	}
	if sundog.KindOf(err) == sundog.Conflict {
		r.remember(ctx, sundog.AsError(err))
	}
	if old := r.refused.Swap(sundog.AsError(err)); old == nil || old.Error() != err.Error() {
		r.log.Error("the cluster refuses this node", "err", err)
	}
}

// admission serves the methods by which nodes found, join and hear of maps.
type admission struct {
	atlas   *atlas
	council *council
	writer  *writer
	founder *founding.Founder
	guard   *guard
}

// join serves MethodJoin. Any member takes it and asks the catalog's leader. A
// node speaks for itself only; who forwards is a node too.
func (a *admission) join(ctx context.Context, req *rpc.Request, q *rpcpb.JoinRequest) (*rpcpb.JoinReply, error) {
	if peer := req.Peer.Node; !q.GetForwarded() && uint64(peer) != q.GetNode().GetId() {
		return nil, sundog.Errorf(sundog.Denied, "node %s registers node %s", peer, sundog.NodeID(q.GetNode().GetId()))
	}
	reply := &rpcpb.JoinReply{}
	err := a.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodJoin, again: true, reply: reply,
		req: &rpcpb.JoinRequest{Node: q.GetNode(), Nonce: q.GetNonce(), Forwarded: true},
		here: func(ctx context.Context) error {
			made, err := a.joinHere(ctx, q)
			if err == nil {
				reply = made
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// joinHere registers a node as the catalog's leader.
func (a *admission) joinHere(ctx context.Context, q *rpcpb.JoinRequest) (*rpcpb.JoinReply, error) {
	_, machine := a.council.replica()
	if machine == nil || !a.council.leads() {
		return nil, sundog.Errorf(sundog.NotOwner, "this node does not lead the catalog")
	}
	start := catalog.Start{Node: nodeOf(q.GetNode()), Nonce: q.GetNonce()}
	if err := a.guard.running(start.Node.ID, start.Node.Boot); err != nil {
		return nil, err
	}
	result, err := a.council.propose(ctx, catalog.NodeUp(start))
	if err != nil {
		return nil, err
	}
	a.guard.fence.Raise(start.Node.ID, start.Node.Boot)
	m := machine.Map()
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	return &rpcpb.JoinReply{Epoch: uint64(result.Epoch), Map: data}, nil
}

// mapPush serves MethodMapPush.
func (a *admission) mapPush(_ context.Context, _ *rpc.Request, q *rpcpb.MapPushRequest) (*rpcpb.MapPushReply, error) {
	m, err := ring.UnmarshalMap(q.GetMap())
	if err != nil {
		return nil, err
	}
	if _, err := a.atlas.Offer(m); err != nil {
		return nil, err
	}
	return &rpcpb.MapPushReply{Epoch: uint64(a.atlas.Epoch())}, nil
}

// found serves MethodFound.
func (a *admission) found(_ context.Context, req *rpc.Request, q *rpcpb.FoundRequest) (*rpcpb.FoundReply, error) {
	if err := a.founder.HandleAsk(req.Peer.Node, askOf(q)); err != nil {
		return nil, err
	}
	return &rpcpb.FoundReply{Accepted: true, Cluster: q.GetCluster()}, nil
}

func askOf(q *rpcpb.FoundRequest) founding.Ask {
	ask := founding.Ask{Dry: q.GetDry(), Founding: founding.Founding{
		Cluster: q.GetCluster(), Founder: sundog.NodeID(q.GetFounder()), Params: q.GetParams(),
	}}
	for _, id := range q.GetMembers() {
		ask.Founding.Members = append(ask.Founding.Members, sundog.NodeID(id))
	}
	return ask
}

func askPB(ask founding.Ask) *rpcpb.FoundRequest {
	q := &rpcpb.FoundRequest{
		Cluster: ask.Founding.Cluster, Founder: uint64(ask.Founding.Founder), Params: ask.Founding.Params, Dry: ask.Dry,
	}
	for _, id := range ask.Founding.Members {
		q.Members = append(q.Members, uint64(id))
	}
	return q
}

func nodePB(n ring.Node) *rpcpb.Node {
	return &rpcpb.Node{
		Id: uint64(n.ID), Listen: n.Listen, Gossip: n.Gossip, Http: n.HTTP, Zone: n.Zone, Weight: uint32(n.Weight), Boot: n.Boot,
	}
}

func nodeOf(n *rpcpb.Node) ring.Node {
	return ring.Node{
		ID: sundog.NodeID(n.GetId()), Listen: n.GetListen(), Gossip: n.GetGossip(), HTTP: n.GetHttp(), Zone: n.GetZone(),
		Weight: int(n.GetWeight()), Boot: n.GetBoot(),
	}
}
