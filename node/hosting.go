package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
)

// openReplica starts this node's replica of a partition.
type openReplica func(p sundog.Partition, group raftgroup.Config) (*strong.Partition, error)

const (
	hostRetry   = time.Second            // before a replica that did not open is tried again
	hostStagger = 5 * time.Millisecond   // between two openings, so that elections do not all fall together
	hostSpread  = 500 * time.Millisecond // the longest that all openings are held back by that
	syncTimeout = 5 * time.Second        // of bringing a pool set into one group
	syncWide    = 64                     // groups brought up to date at once
)

// hosting runs the replicas that the map places on this node.
type hosting struct {
	self    sundog.NodeID
	atlas   *atlas
	dir     *datadir.Dir
	engines *replication.Engines
	open    openReplica
	log     *slog.Logger

	turned chan struct{} // a partition's leadership changed

	mu     sync.Mutex // guards the next two
	hosted map[sundog.Partition]*strong.Partition
	failed map[sundog.Partition]error // why a placed replica does not run
}

func newHosting(self sundog.NodeID, a *atlas, dir *datadir.Dir, engines *replication.Engines, open openReplica, log *slog.Logger) *hosting {
	return &hosting{
		self: self, atlas: a, dir: dir, engines: engines, open: open, log: log, turned: make(chan struct{}, 1),
		hosted: map[sundog.Partition]*strong.Partition{}, failed: map[sundog.Partition]error{},
	}
}

// run opens what each new map places here, until ctx ends.
func (h *hosting) run(ctx context.Context) {
	births := &births{hosting: h}
	for {
		changed := h.atlas.Changed()
		done := true
		if m := h.atlas.Map(); m != nil {
			done = h.host(ctx, m)
			births.step(m)
		}
		var again <-chan time.Time
		switch {
		case births.pending(): // soon: a birth waits for it
			again = time.After(births.pace)
		case !done:
			again = time.After(hostRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// host opens the replicas that are placed here and not open yet; it says whether
// all are open.
func (h *hosting) host(ctx context.Context, m *ring.Map) bool {
	var missing []sundog.Partition
	failures := h.failures()
	for p := range sundog.Partition(len(m.Placement)) {
		damaged := sundog.KindOf(failures[p]) == sundog.Corrupt // only an operator can help
		if m.Owners(p).Index(h.self) >= 0 && h.get(p) == nil && !damaged {
			missing = append(missing, p)
		}
	}
	all := true
	stagger := min(hostStagger, hostSpread/time.Duration(max(1, len(missing))))
	for i, p := range missing {
		if i > 0 && !wait(ctx, stagger) {
			return false
		}
		if err := h.hostOne(m, p); err != nil {
			h.log.Error("replica not opened", "partition", p, "err", err)
			all = false
		}
	}
	return all
}

func (h *hosting) hostOne(m *ring.Map, p sundog.Partition) error {
	owners := m.Owners(p)
	server := owners[owners.Index(h.self)].ServerID()
	r, err := h.open(p, raftgroup.Config{Self: server, Timings: m.Timings, OnLeader: func(leading bool, term uint64) {
		h.log.Debug("leadership", "partition", p, "leading", leading, "term", term)
		hint(h.turned)
	}})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed[p] = err
		return err
	}
	delete(h.failed, p)
	h.hosted[p] = r
	return h.engines.Add(sundog.Strong, p, r)
}

// birthKey is where the data directory notes that a partition's group was born here.
func birthKey(p sundog.Partition) datadir.StepKey {
	return datadir.StepKey{Group: uint32(raftgroup.PartitionGroup(p))}
}

// get returns the replica of a partition, nil where none runs here.
func (h *hosting) get(p sundog.Partition) *strong.Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosted[p]
}

// each calls fn for every replica that runs here, in order of partition.
func (h *hosting) each(fn func(p sundog.Partition, r *strong.Partition)) {
	h.mu.Lock()
	hosted := maps.Clone(h.hosted)
	h.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(hosted)) {
		fn(p, hosted[p])
	}
}

// failures returns why placed replicas do not run.
func (h *hosting) failures() map[sundog.Partition]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.failed)
}

// sync brings each new pool set into the groups that this node leads, until ctx
// ends. A replica that becomes leader does so by itself.
func (h *hosting) sync(ctx context.Context) {
	var pools []ring.Pool
	var since sundog.Epoch // of the first map with these pools
	for {
		changed := h.atlas.Changed()
		done := true
		if m := h.atlas.Map(); m != nil {
			if since == 0 || !slices.Equal(pools, m.Pools) {
				pools, since = m.Pools, m.Epoch
			}
			done = h.syncLed(ctx, m, since)
		}
		var again <-chan time.Time
		if !done {
			again = time.After(hostRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-h.turned:
		case <-again:
		}
	}
}

// syncLed brings the pool set into the led groups that have an older one; it
// says whether none is left.
func (h *hosting) syncLed(ctx context.Context, m *ring.Map, since sundog.Epoch) bool {
	var led []*strong.Partition
	h.each(func(_ sundog.Partition, r *strong.Partition) {
		if st := r.Status(); st.Leading && st.Catalog < since {
			led = append(led, r)
		}
	})
	errs := make([]error, len(led))
	inParallel(syncWide, len(led), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		errs[i] = led[i].SyncPools(ctx, m)
	})
	done := true
	for i, err := range errs {
		if err != nil && led[i].Status().Leading {
			h.log.Info("pool set put off", "partition", led[i].Status().Partition, "err", err)
			done = false
		}
	}
	return done
}

// Close stops all replicas and joins them. Nothing may open more: the node ends
// run first.
func (h *hosting) Close() error {
	h.mu.Lock()
	hosted := h.hosted
	h.hosted = map[sundog.Partition]*strong.Partition{}
	h.mu.Unlock()
	for p := range hosted {
		h.engines.Remove(sundog.Strong, p)
	}
	all := slices.Collect(maps.Values(hosted))
	errs := make([]error, len(all))
	inParallel(syncWide, len(all), func(i int) { errs[i] = all[i].Close() })
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// inParallel calls fn for 0 to n-1, at most wide at once, and returns when all
// have returned.
func inParallel(wide, n int, fn func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, max(1, wide))
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	all.Wait()
}
