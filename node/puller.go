package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// Pace of map pulls.
const (
	pullTimeout = time.Second            // one node's answer
	pullRest    = 20 * time.Millisecond  // between two sweeps that somebody waits for
	pullRetry   = 250 * time.Millisecond // after a sweep for a rumour that found nothing; doubled each time
	pullRetries = 5 * time.Second        // the longest that becomes
	pullWide    = 3                      // nodes asked at once
	rumourLife  = time.Minute            // an epoch that nobody spoke of since is forgotten
)

// puller fetches newer maps from any node that has them. One goroutine, run by
// the node, does all pulls, one sweep over the nodes at a time.
//
// An epoch that somebody spoke of is a rumour: gossip may say anything. It is
// looked for at once, and, while nobody has it, again at a pace that slows down
// to pullRetries whoever goes on telling it, until it is forgotten. Only a map
// that was found, or that nobody could be asked, says that this node is behind.
type puller struct {
	atlas   *atlas
	sources func() []sundog.NodeID // whom to ask, best first
	call    func(ctx context.Context, id sundog.NodeID, have sundog.Epoch) (*ring.Map, error)
	log     *slog.Logger

	asks chan chan struct{} // each is closed after a sweep that began after it was sent
	kick chan struct{}      // a newer epoch was heard of

	mu     sync.Mutex // guards the next three
	rumour sundog.Epoch
	heard  time.Time // when the rumour was told last
	deaf   bool      // the last sweep reached nobody
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
	if e <= p.atlas.Epoch() {
		return
	}
	p.mu.Lock()
	if e >= p.rumour || time.Since(p.heard) > rumourLife {
		p.rumour, p.heard = e, time.Now()
	}
	p.mu.Unlock()
	hint(p.kick)
}

// pending returns a newer epoch that was heard of lately, 0 for none.
func (p *puller) pending() sundog.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rumour <= p.atlas.Epoch() || time.Since(p.heard) > rumourLife {
		return 0
	}
	return p.rumour
}

// missed returns a newer epoch that was heard of and that nobody could be asked
// for, 0 for none.
func (p *puller) missed() sundog.Epoch {
	e := p.pending()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.deaf {
		return 0
	}
	return e
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

// run pulls until ctx ends: at once for those who wait, at the pace of rumours for
// these.
func (p *puller) run(ctx context.Context) {
	pace := pullRetry
	var last time.Time // the end of the last sweep
	var retry <-chan time.Time
	for {
		var waiting []chan struct{}
		kick := p.kick
		if retry != nil {
			kick = nil // it is in the retry already
		}
		select {
		case <-ctx.Done():
			return
		case w := <-p.asks:
			waiting = append(waiting, w)
		case <-kick:
		case <-retry:
		}
		if !wait(ctx, pullRest-time.Since(last)) {
			return
		}
		waiting = p.gather(waiting)
		before := p.atlas.Epoch()
		p.sweep(ctx)
		last = time.Now()
		for _, w := range waiting {
			close(w)
		}
		retry = nil
		if p.atlas.Epoch() > before {
			pace = pullRetry
		}
		if p.pending() != 0 {
			retry = time.After(pace)
			pace = min(2*pace, pullRetries)
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
	var reached atomic.Bool
	for len(sources) > 0 && p.atlas.Epoch() == have && ctx.Err() == nil {
		some := sources[:min(pullWide, len(sources))]
		sources = sources[len(some):]
		var asked sync.WaitGroup
		for _, id := range some {
			asked.Go(func() {
				if p.ask(ctx, id, have) {
					reached.Store(true)
				}
			})
		}
		asked.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = !reached.Load()
}

// ask pulls from one node and says whether it answered.
func (p *puller) ask(ctx context.Context, id sundog.NodeID, have sundog.Epoch) bool {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	m, err := p.call(ctx, id, have)
	answered := err == nil
	if err == nil && m != nil {
		_, err = p.atlas.Offer(m)
	}
	if err != nil {
		p.log.Debug("map not pulled", "from", id, "err", err)
	}
	return answered
}
