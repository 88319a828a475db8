package node

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/rpc"
)

// directory finds nodes by id and calls them. An address is a hint that gossip
// renews; who answers there is checked in the handshake, so that a port that
// another node took over is never mistaken.
type directory struct {
	atlas   *atlas
	members func() []membership.Member
	guard   *guard
	conns   *rpc.Pool
	dial    rpc.DialConfig // of upgrades
	hear    func(sundog.Epoch)
	log     *slog.Logger

	mu     sync.Mutex // guards unwell
	unwell map[sundog.NodeID]sundog.Kind
}

// address returns where a node listens: what gossip says, else the map. A copy of
// the node's data directory that gossips a later start is passed over.
func (d *directory) address(id sundog.NodeID) (string, error) {
	for _, m := range d.members() {
		if m.Node == id && m.Listen != "" && !d.guard.isCopy(id, m.Boot) {
			return m.Listen, nil
		}
	}
	if m := d.atlas.Map(); m != nil {
		if n, ok := m.Node(id); ok && n.Listen != "" {
			return n.Listen, nil
		}
	}
	return "", sundog.Errorf(sundog.Unavailable, "no address of node %s is known", id)
}

// call asks a node and reads its answer into reply. Errors are those of
// [rpc.Conn.Call], and Unavailable where the node cannot be reached.
func (d *directory) call(ctx context.Context, id sundog.NodeID, method rpc.Method, req, reply proto.Message) error {
	addr, err := d.address(id)
	if err != nil {
		return err
	}
	conn, err := d.conns.Get(ctx, addr)
	if err != nil {
		return err
	}
	if got := conn.Peer().Node; got != id {
		return sundog.Errorf(sundog.Unavailable, "node %s is no longer at %s: node %s answers there", id, addr, got)
	}
	epoch, err := rpc.Invoke(ctx, conn, method, d.atlas.Epoch(), req, reply)
	d.hear(epoch)
	return err
}

// lane opens a connection of a protocol of its own, for Raft.
func (d *directory) lane(ctx context.Context, id sundog.NodeID, protocol string) (net.Conn, error) {
	addr, err := d.address(id)
	if err != nil {
		return nil, err
	}
	cfg := d.dial
	cfg.Expect = id
	conn, _, err := rpc.DialUpgrade(ctx, addr, protocol, cfg)
	d.note(ctx, id, addr, err)
	return conn, err
}

// note tells the operator when a peer begins to be out of reach or to refuse this
// node, and when that is over; not at every try.
func (d *directory) note(ctx context.Context, id sundog.NodeID, addr string, err error) {
	kind := sundog.KindOf(err)
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	before := d.unwell[id]
	if d.unwell == nil {
		d.unwell = map[sundog.NodeID]sundog.Kind{}
	}
	d.unwell[id] = kind
	d.mu.Unlock()
	switch {
	case kind == before:
	case kind == 0:
		d.log.Info("a node is in reach again", "peer", id, "addr", addr)
	case refused(err):
		d.log.Warn("a node refuses this one", "peer", id, "addr", addr, "err", err)
	default:
		d.log.Info("a node is out of reach", "peer", id, "addr", addr, "err", err)
	}
}
