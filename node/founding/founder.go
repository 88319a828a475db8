package founding

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
)

// Store is the durable side: *datadir.Dir is one.
type Store interface {
	Hearsay
	Founding() (Founding, bool)      // what was accepted
	AcceptFounding(Founding) error   // once for ever, durable before nil
	Cluster() string                 // "" for none
	SetCluster(cluster string) error // once for ever
}

// Hearsay is the durable note that a cluster exists.
type Hearsay interface {
	Heard() string             // "" for none
	Hear(cluster string) error // the first one is kept
}

// Catalog is what the founder bootstraps.
type Catalog interface {
	// Bootstrapped reports whether Bootstrap of this founding has taken effect
	// before, in this process or an earlier one.
	Bootstrapped(Founding) (bool, error)
	// Bootstrap founds the cluster's catalog with the members as its voters. It
	// must be idempotent: a crash at any point leads to the same call again.
	Bootstrap(context.Context, Founding) error
}

// Deps is what a Founder works with. All are required but Retry and Logger.
type Deps struct {
	Self   sundog.NodeID
	Expect int    // --bootstrap-expect, 0 for none
	Params string // what is fixed for ever, compared as text between all members

	Members func() []Member // the present gossip view
	Changes <-chan struct{} // a hint that Members changed; may coalesce, must not be closed
	// Ask sends one ask to a member; nil is "accepted". It must end with ctx.
	Ask     func(ctx context.Context, to sundog.NodeID, ask Ask) error
	Store   Store
	Catalog Catalog
	NewID   func() string // a random cluster id

	Retry  time.Duration // pause between rounds; 0 is 1 s. The asks of a round may take five times as long
	Logger *slog.Logger  // nil discards
}

// Role is how a node gets its cluster.
type Role uint8

// The roles.
const (
	Founded  Role = 1 // this node bootstrapped; Store.Cluster is set
	Enlisted Role = 2 // this node accepted another's founding: start the catalog empty, be ready for its leader
	Joins    Role = 3 // a cluster exists, or this directory belongs to one: join it
)

// String says the role in a word.
func (r Role) String() string {
	switch r {
	case Founded:
		return "founder"
	case Enlisted:
		return "co-founder"
	case Joins:
		return "member"
	}
	return "none"
}

// Outcome is what Run decided.
type Outcome struct {
	Role     Role
	Cluster  string   // the cluster's id; for Enlisted the id it will have
	Founding Founding // Founded, Enlisted
}

// Founder is a node's part in founding. HandleAsk serves for the life of the
// process, also before, during and after Run.
type Founder struct {
	deps   Deps
	mu     sync.Mutex // makes judging and writing down one step
	status atomic.Pointer[string]
	bound  chan struct{} // a token: HandleAsk accepted a founding, Run should look
	tally  *Tally        // of the own founding; only Run's goroutine
}

// New returns a Founder.
func New(deps Deps) *Founder {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Retry <= 0 {
		deps.Retry = time.Second
	}
	f := &Founder{deps: deps, bound: make(chan struct{}, 1)}
	f.setStatus("")
	return f
}

// Status tells the operator what the founding waits for, "" when it is decided.
func (f *Founder) Status() string { return *f.status.Load() }

func (f *Founder) setStatus(s string) { f.status.Store(&s) }

// HandleAsk answers another node's ask; from is the identity its connection
// proved. nil is "accepted", durably unless the ask was dry; for the kinds of
// refusals see [Judge].
func (f *Founder) HandleAsk(from sundog.NodeID, ask Ask) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.knowledge()
	if err := Judge(k, from, ask); err != nil {
		return err
	}
	if ask.Dry {
		return nil
	}
	if err := f.deps.Store.AcceptFounding(ask.Founding); err != nil {
		return err
	}
	if k.Accepted == nil {
		f.deps.Logger.Info("accepted a founding", "founding", ask.Founding.String())
		select {
		case f.bound <- struct{}{}:
		default:
		}
	}
	return nil
}

// knowledge gathers what the rules look at.
func (f *Founder) knowledge() Knowledge {
	d := f.deps
	k := Knowledge{Self: d.Self, Expect: d.Expect, Params: d.Params, Cluster: d.Store.Cluster(), Heard: d.Store.Heard(), Members: d.Members()}
	if accepted, ok := d.Store.Founding(); ok {
		k.Accepted = &accepted
	}
	return k
}

// Run returns when it is decided how this node gets its cluster. It may be run
// again after a restart at any point and goes on where the durable state is. It
// fails when ctx ends, or when the store or the catalog fail. One Run at a time.
func (f *Founder) Run(ctx context.Context) (Outcome, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Outcome{}, sundog.Errorf(sundog.KindOf(err), "founding: %w", err)
		}
		outcome, again, err := f.round(ctx)
		if err != nil {
			return Outcome{}, err
		}
		if outcome.Role != 0 {
			f.setStatus("")
			return outcome, nil
		}
		if !again {
			f.pause(ctx)
		}
	}
}

func (f *Founder) pause(ctx context.Context) {
	t := time.NewTimer(f.deps.Retry)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.deps.Changes:
	case <-f.bound:
	case <-t.C:
	}
}

// round takes one step. Without an outcome the next follows after a pause, or
// at once where again is set.
func (f *Founder) round(ctx context.Context) (outcome Outcome, again bool, err error) {
	k := f.knowledge()
	if k.Accepted != nil && k.Accepted.Founder == k.Self && k.Cluster == "" {
		if k.Bootstrapped, err = f.deps.Catalog.Bootstrapped(*k.Accepted); err != nil {
			return Outcome{}, false, err
		}
	}
	d := Decide(k)
	switch d.Step {
	case Join:
		return f.join(d.Cluster)
	case Belong:
		return Outcome{Role: Enlisted, Cluster: d.Founding.Cluster, Founding: d.Founding}, false, nil
	case Propose:
		again, err = f.propose(ctx, d.Founding)
		return Outcome{}, again, err
	case Resume:
		outcome, err = f.resume(ctx, d.Founding, k.Bootstrapped)
		return outcome, false, err
	}
	f.wait(d.Reason)
	return Outcome{}, false, nil
}

func (f *Founder) wait(reason string) {
	if f.Status() != reason {
		f.deps.Logger.Info("waiting", "for", reason)
	}
	f.setStatus(reason)
}

// join notes that a cluster exists, unless this node accepted a founding in the
// meantime: then the next round decides anew.
func (f *Founder) join(cluster string) (outcome Outcome, again bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.knowledge()
	if k.Cluster == "" {
		if k.Accepted != nil {
			return Outcome{}, true, nil
		}
		if err := f.deps.Store.Hear(cluster); err != nil {
			return Outcome{}, false, err
		}
	}
	return Outcome{Role: Joins, Cluster: cluster}, false, nil
}

// propose asks everybody whether they would accept before this node binds
// itself: a view that others do not share then costs nothing. True when this
// node has accepted its own founding.
func (f *Founder) propose(ctx context.Context, founding Founding) (bool, error) {
	founding.Cluster = f.deps.NewID()
	if missing, reason := f.collect(ctx, NewTally(founding), true); len(missing) > 0 {
		f.wait(reason)
		return false, nil
	}
	// The view may have changed meanwhile, and another ask may have been
	// accepted: the same judge decides for this node as for all others.
	err := f.HandleAsk(f.deps.Self, Ask{Founding: founding})
	if k := sundog.KindOf(err); k == sundog.Unavailable || k == sundog.Conflict {
		f.wait("founding: " + err.Error())
		return false, nil
	}
	return err == nil, err
}

// resume collects the acceptances of the founding this node accepted as its
// founder, and bootstraps when none is missing.
func (f *Founder) resume(ctx context.Context, founding Founding, bootstrapped bool) (Outcome, error) {
	if !bootstrapped {
		if f.tally == nil || !f.tally.founding.Equal(founding) {
			f.tally = NewTally(founding)
		}
		if missing, reason := f.collect(ctx, f.tally, false); len(missing) > 0 {
			f.wait(reason)
			return Outcome{}, nil
		}
		if err := f.deps.Catalog.Bootstrap(ctx, founding); err != nil {
			return Outcome{}, err
		}
	}
	if err := f.deps.Store.SetCluster(founding.Cluster); err != nil {
		return Outcome{}, err
	}
	f.deps.Logger.Info("founded", "founding", founding.String())
	return Outcome{Role: Founded, Cluster: founding.Cluster, Founding: founding}, nil
}

// collect asks at once all members that are missing in the tally, and returns
// who still is, and why.
func (f *Founder) collect(ctx context.Context, tally *Tally, dry bool) (missing []sundog.NodeID, reason string) {
	const patience = 5 // rounds
	ctx, cancel := context.WithTimeout(ctx, patience*f.deps.Retry)
	defer cancel()
	ask := Ask{Founding: tally.founding, Dry: dry}
	ids := tally.Missing()
	answers := make([]error, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		asked.Go(func() {
			if id == f.deps.Self {
				answers[i] = f.HandleAsk(id, ask)
			} else {
				answers[i] = f.deps.Ask(ctx, id, ask)
			}
		})
	}
	asked.Wait()
	var why []string
	for i, err := range answers {
		if err == nil {
			tally.Add(ids[i])
		} else {
			why = append(why, fmt.Sprintf("%s (%v)", ids[i], err))
		}
	}
	return tally.Missing(), "founding: waiting for " + strings.Join(why, ", ")
}
