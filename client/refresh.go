package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// The rhythm of map refreshes.
const (
	// refreshEvery is the mean time between the starts of refreshes at least;
	// after a rest refreshBurst of them may follow each other at once.
	refreshEvery = 100 * time.Millisecond
	refreshBurst = 3
	// refreshWithin bounds one refresh.
	refreshWithin = 2 * time.Second
	// probeEvery is how long a silent address delays the next one.
	probeEvery = 150 * time.Millisecond
	// probesMax bounds the addresses asked at the same time.
	probesMax = 8
)

// refresher makes concurrent refreshes one, and keeps them apart in time.
type refresher struct {
	mu     sync.Mutex // guards all below
	flight *flight    // under way; nil: none
	due    time.Time  // before this the next waits; behind now by the burst at most
	failed error      // how the latest that ended ended
}

// late is the error of a caller that cannot wait for the flight to end: what the
// one before said, if it said anything.
func (r *refresher) late(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	return sundog.Errorf(sundog.Unavailable, "no node gave the cluster map in time: %w", ctx.Err())
}

// flight is one refresh. err is readable once done is closed.
type flight struct {
	done chan struct{}
	err  error
}

// refresh gets a newer map if there is one, sharing the work with all callers
// that want it now. It returns early when ctx ends. The error is of kind
// Unavailable when no node answered.
func (c *Client) refresh(ctx context.Context) error {
	f := c.startRefresh()
	if f == nil {
		return sundog.Errorf(sundog.Closed, "client is closed")
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return c.refresher.late(ctx)
	}
}

// startRefresh returns the flight under way, or starts one.
func (c *Client) startRefresh() *flight {
	r := &c.refresher
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flight != nil {
		return r.flight
	}
	if !c.hold() {
		return nil
	}
	f := &flight{done: make(chan struct{})}
	r.flight = f
	now := time.Now()
	if earliest := now.Add(-refreshBurst * refreshEvery); r.due.Before(earliest) {
		r.due = earliest
	}
	r.due = r.due.Add(refreshEvery)
	wait := r.due.Sub(now)
	go func() {
		defer c.calls.Done()
		f.err = c.fly(wait)
		r.mu.Lock()
		r.flight, r.failed = nil, f.err
		r.mu.Unlock()
		close(f.done)
	}()
	return f
}

func (c *Client) fly(wait time.Duration) error {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
			return sundog.Errorf(sundog.Closed, "client is closed")
		}
	}
	c.counters.refreshes.Add(1)
	ctx, cancel := context.WithTimeout(c.life, refreshWithin)
	defer cancel()
	return c.race(ctx, c.candidates())
}

// candidates are all known addresses: the map's nodes in random order, so that
// clients spread, then the seeds.
func (c *Client) candidates() []string {
	var out []string
	if v := c.view.Load(); v != nil {
		for _, n := range v.Map().Nodes {
			out = append(out, n.Listen)
		}
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	for _, s := range c.seeds {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// answer is what one probe brought.
type answer struct {
	addr    string
	m       *ring.Map // nil: ours is current
	leaders []*rpcpb.Leader
	err     error
}

// failure tells who failed and how.
func (a *answer) failure() string {
	msg := text(a.err)
	if strings.Contains(msg, a.addr) {
		return msg
	}
	return a.addr + ": " + msg
}

// race asks one address after the other for the map, the next one when the last
// has failed or been silent for a while, and takes the first good answer.
func (c *Client) race(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	defer probes.Wait() // after cancel
	defer cancel()

	answers := make(chan answer, len(addrs))
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var failed []string
	asked, running := 0, 0
	ask := func() {
		if asked < len(addrs) && running < probesMax {
			addr := addrs[asked]
			probes.Go(func() { answers <- c.fetch(ctx, addr) })
			asked, running = asked+1, running+1
		}
	}
	for ask(); running > 0; {
		select {
		case a := <-answers:
			running--
			if a.err == nil {
				c.adopt(a.m, a.leaders)
				return nil
			}
			failed = append(failed, a.failure())
			ask()
		case <-tick.C:
			ask()
		case <-ctx.Done():
			return noNode(append(failed, fmt.Sprintf("%d silent", len(addrs)-len(failed))))
		}
	}
	return noNode(failed)
}

func noNode(failed []string) error {
	const shown = 4
	more := ""
	if len(failed) > shown {
		more = fmt.Sprintf("; and %d more", len(failed)-shown)
		failed = failed[:shown]
	}
	return sundog.Errorf(sundog.Unavailable, "no node gave the cluster map: %s%s", strings.Join(failed, "; "), more)
}

// newest takes in the maps of all nodes that keep the catalog, as far as they
// answer. A change that its maker was told of is in one of them, while a node
// beside them may not have heard of it yet. Where none of them answers any other
// node must do; the error is that of refresh.
func (c *Client) newest(ctx context.Context) error {
	short, cancel := shortened(ctx)
	defer cancel()
	var asking sync.WaitGroup
	var answered atomic.Bool
	for _, n := range c.view.Load().Map().Nodes {
		if n.Catalog == ring.Voter {
			asking.Go(func() {
				if a := c.fetch(short, n.Listen); a.err == nil {
					c.adopt(a.m, a.leaders)
					answered.Store(true)
				}
			})
		}
	}
	asking.Wait()
	if answered.Load() {
		return nil
	}
	if err := c.refresh(ctx); err != nil {
		return c.ended(ctx, 2, sundog.AsError(err))
	}
	return nil
}

// fetch asks addr for a map newer than ours and for what it knows of leaders.
func (c *Client) fetch(ctx context.Context, addr string) answer {
	a := answer{addr: addr}
	conn, err := c.conns.Get(ctx, addr)
	if err != nil {
		a.err = err
		return a
	}
	var reply rpcpb.MapReply
	have := c.epoch()
	req := &rpcpb.MapRequest{HaveEpoch: uint64(have)}
	if _, a.err = rpc.Invoke(ctx, conn, rpc.MethodMap, have, req, &reply); a.err != nil {
		return a
	}
	a.leaders = reply.GetLeaders()
	if len(reply.GetMap()) == 0 {
		if have == 0 {
			a.err = sundog.Errorf(sundog.Unavailable, "has no cluster map yet")
		}
		return a
	}
	if a.m, a.err = ring.UnmarshalMap(reply.GetMap()); a.err != nil {
		return a
	}
	if v := c.view.Load(); v != nil && v.Map().Cluster != a.m.Cluster {
		a.err = sundog.Errorf(sundog.Conflict, "belongs to cluster %s, this client to %s", a.m.Cluster, v.Map().Cluster)
	}
	return a
}
