package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

const (
	heraldTimeout = 2 * time.Second // one node's answer to a push
	heraldWide    = 16              // pushes at once
)

// herald pushes each new map from the catalog's leader to all live nodes, so that
// they need not wait for gossip to tell them of it. Whoever misses a push pulls.
type herald struct {
	self  sundog.NodeID
	atlas *atlas
	leads func() bool
	alive func(sundog.NodeID) bool
	push  func(context.Context, sundog.NodeID, []byte) error
	log   *slog.Logger

	mu   sync.Mutex // guards busy
	busy map[sundog.NodeID]bool
}

func newHerald(self sundog.NodeID, a *atlas, d *directory, leads func() bool, alive func(sundog.NodeID) bool, log *slog.Logger) *herald {
	return &herald{
		self: self, atlas: a, leads: leads, alive: alive, log: log, busy: map[sundog.NodeID]bool{},
		push: func(ctx context.Context, id sundog.NodeID, m []byte) error {
			return d.call(ctx, id, rpc.MethodMapPush, &rpcpb.MapPushRequest{Map: m}, &rpcpb.MapPushReply{})
		},
	}
}

// run pushes until ctx ends, and joins what it started.
func (h *herald) run(ctx context.Context) {
	var pushes sync.WaitGroup
	defer pushes.Wait()
	slots := make(chan struct{}, heraldWide)
	for {
		changed := h.atlas.Changed()
		if m := h.atlas.Map(); m != nil && h.leads() {
			h.spread(ctx, m, slots, &pushes)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// spread starts a push of m to every live node that none is under way to: a slow
// node delays only itself, and gets the newest map when it is done.
func (h *herald) spread(ctx context.Context, m *ring.Map, slots chan struct{}, pushes *sync.WaitGroup) {
	for _, n := range m.Nodes {
		if n.ID == h.self || !h.alive(n.ID) || !h.claim(n.ID) {
			continue
		}
		pushes.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				h.bring(ctx, n.ID)
			case <-ctx.Done():
				h.release(n.ID)
			}
		})
	}
}

// bring pushes until the node has the newest map or does not answer.
func (h *herald) bring(ctx context.Context, id sundog.NodeID) {
	for {
		m, data, err := h.atlas.Encoded()
		if err == nil {
			err = h.send(ctx, id, data)
		}
		if err != nil {
			h.release(id)
			h.log.Debug("map not pushed", "to", id, "epoch", m.Epoch, "err", err)
			return
		}
		h.release(id)
		if h.atlas.Map() == m || !h.claim(id) {
			return
		}
	}
}

func (h *herald) send(ctx context.Context, id sundog.NodeID, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, heraldTimeout)
	defer cancel()
	return h.push(ctx, id, data)
}

// claim takes the right to push to a node; false while another has it.
func (h *herald) claim(id sundog.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[id] {
		return false
	}
	h.busy[id] = true
	return true
}

func (h *herald) release(id sundog.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, id)
}
