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

// Pace of map pulls.
const (
	pullTimeout = time.Second            // one node's answer
	pullRest    = 20 * time.Millisecond  // between two sweeps: a peer that invents epochs costs no more
	pullRetry   = 250 * time.Millisecond // while a newer epoch was heard of and nobody had it
	pullWide    = 3                      // nodes asked at once
)

// puller fetches newer maps from any node that has them. One goroutine, run by
// the node, does all pulls, one sweep over the nodes at a time.
type puller struct {
	atlas   *atlas
	sources func() []sundog.NodeID // whom to ask, best first
	call    func(ctx context.Context, id sundog.NodeID, have sundog.Epoch) (*ring.Map, error)
	log     *slog.Logger

	asks chan chan struct{} // each is closed after a sweep that began after it was sent
	kick chan struct{}      // a newer epoch was heard of
}

func newPuller(a *atlas, d *directory, sources func() []sundog.NodeID, log *slog.Logger) *puller {
	return &puller{
		atlas: a, sources: sources, log: log,
		asks: make(chan chan struct{}), kick: make(chan struct{}, 1),
		call: func(ctx context.Context, id sundog.NodeID, have sundog.Epoch) (*ring.Map, error) {
			var reply rpcpb.MapReply
			err := d.call(ctx, id, rpc.MethodMap, &rpcpb.MapRequest{HaveEpoch: uint64(have)}, &reply)
			if err != nil || len(reply.GetMap()) == 0 {
				return nil, err
			}
			return ring.UnmarshalMap(reply.GetMap())
		},
	}
}

// hear notes an epoch that a node spoke of and has the map pulled if it is newer.
func (p *puller) hear(e sundog.Epoch) {
	if p.atlas.hear(e) {
		select {
		case p.kick <- struct{}{}:
		default: // a pull is due already
		}
	}
}

// need returns when the map is at epoch e or later. Unavailable: nobody that was
// asked has it.
func (p *puller) need(ctx context.Context, e sundog.Epoch) error {
	for range 2 { // the first sweep may have begun before e was committed
		if p.atlas.Epoch() >= e {
			return nil
		}
		swept := make(chan struct{})
		select {
		case p.asks <- swept:
		case <-ctx.Done():
			return sundog.AsError(ctx.Err())
		}
		select {
		case <-swept:
		case <-ctx.Done():
			return sundog.AsError(ctx.Err())
		}
	}
	if have := p.atlas.Epoch(); have < e {
		err := sundog.Errorf(sundog.Unavailable, "the request knows map epoch %d, this node has %d and nobody it reached has a newer one", e, have)
		err.Epoch = have
		return err
	}
	return nil
}

// run pulls until ctx ends.
func (p *puller) run(ctx context.Context) {
	var retry <-chan time.Time
	for {
		var waiting []chan struct{}
		select {
		case <-ctx.Done():
			return
		case w := <-p.asks:
			waiting = append(waiting, w)
		case <-p.kick:
		case <-retry:
		}
		waiting = p.gather(waiting)
		p.sweep(ctx)
		for _, w := range waiting {
			close(w)
		}
		retry = nil
		rest := time.NewTimer(pullRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
		if sundog.Epoch(p.atlas.heard.Load()) > p.atlas.Epoch() {
			retry = time.After(pullRetry)
		}
	}
}

// gather takes those who wait for a sweep already.
func (p *puller) gather(waiting []chan struct{}) []chan struct{} {
	for {
		select {
		case w := <-p.asks:
			waiting = append(waiting, w)
		default:
			return waiting
		}
	}
}

// sweep asks the sources, a few at a time, until one had a newer map.
func (p *puller) sweep(ctx context.Context) {
	have := p.atlas.Epoch()
	sources := p.sources()
	for len(sources) > 0 && p.atlas.Epoch() == have && ctx.Err() == nil {
		some := sources[:min(pullWide, len(sources))]
		sources = sources[len(some):]
		var asked sync.WaitGroup
		for _, id := range some {
			asked.Go(func() { p.ask(ctx, id, have) })
		}
		asked.Wait()
	}
}

func (p *puller) ask(ctx context.Context, id sundog.NodeID, have sundog.Epoch) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	m, err := p.call(ctx, id, have)
	if err == nil && m != nil {
		_, err = p.atlas.Offer(m)
	}
	if err != nil {
		p.log.Debug("map not pulled", "from", id, "err", err)
	}
}
