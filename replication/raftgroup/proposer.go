package raftgroup

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// proposer packs what waits in a group into log entries of one raft instance.
// While one entry is on its way to disks and peers the next one gathers, so that
// batches grow by themselves with the load; a few entries are under way at a time.
//
// Its goroutine hands entries to raft in order, a second one (the completer)
// takes their outcomes in the same order. All it has, the room for entries under
// way too, is the instance's: raft forgets the futures of entries that were
// committed and not yet applied when it ends, and those must not take room from,
// or stand before, the entries of the next instance.
type proposer struct {
	g         *Group
	raft      *raft.Raft
	slots     chan struct{} // a token for each entry under way
	flights   chan *flight
	stopped   *lifetime
	proposing sync.WaitGroup // its goroutine

	mu      sync.Mutex // guards what follows
	pending map[*flight]struct{}
	idle    chan struct{} // not nil: closed when pending is empty
}

// flight is an entry that was handed to raft.
type flight struct {
	future   raft.ApplyFuture
	commands []*proposal
	barriers []*proposal
	once     sync.Once
}

// startProposer starts to propose what waits in the group to a raft instance.
func startProposer(g *Group, r *raft.Raft) *proposer {
	p := &proposer{
		g: g, raft: r, slots: make(chan struct{}, g.cfg.MaxInFlight), flights: make(chan *flight, g.cfg.MaxInFlight),
		stopped: newLifetime(), pending: make(map[*flight]struct{}),
	}
	p.proposing.Go(func() {
		defer close(p.flights)
		p.run()
	})
	// raft may have forgotten the last futures when it ends, and then this
	// goroutine is lost with them; nobody waits for it.
	go p.complete()
	return p
}

// run makes entries of what waits until the proposer is ended.
func (p *proposer) run() {
	for {
		for {
			select {
			case p.slots <- struct{}{}:
			case <-p.stopped.Done():
				return
			}
			if p.stopped.over() {
				return
			}
			f := p.g.waiting.take()
			if f == nil {
				<-p.slots
				break
			}
			p.propose(f)
		}
		select {
		case <-p.g.waiting.wake:
		case <-p.stopped.Done():
			return
		}
	}
}

// propose hands the flight to raft. raft takes it at once unless its thread is
// busy with the disk; what arrives meanwhile goes into the next entry.
func (p *proposer) propose(f *flight) {
	commands := make([][]byte, len(f.commands))
	for i, pr := range f.commands {
		commands[i] = pr.command
	}
	if m := p.g.cfg.Metrics; m != nil {
		m.entries.Inc()
		m.proposals.Add(float64(len(commands)))
	}
	p.mu.Lock()
	p.pending[f] = struct{}{}
	p.mu.Unlock()
	f.future = p.raft.Apply(encodeEntry(p.g.cfg.Clock(), commands), 0)
	p.flights <- f // has room: slots bounds what is under way
}

// complete waits for the flights in order of their entries.
func (p *proposer) complete() {
	for f := range p.flights {
		err := f.future.Error()
		var results []any
		if err == nil {
			switch r := f.future.Response().(type) {
			case []any:
				results = r
			case error:
				err = r
			}
		}
		p.finish(f, results, err)
		<-p.slots
	}
}

// finish answers all that wait for the flight, once.
func (p *proposer) finish(f *flight, results []any, err error) {
	defer p.landed(f)
	f.once.Do(func() {
		if err == nil && len(results) != len(f.commands) {
			err = sundog.Errorf(sundog.Internal, "%d results for %d commands", len(results), len(f.commands))
		}
		for i, pr := range f.commands {
			if err != nil {
				pr.done <- outcome{err: p.g.outcomeOf(err)}
			} else {
				pr.done <- outcome{result: results[i]}
			}
		}
		for _, pr := range f.barriers {
			o := outcome{}
			if err != nil {
				o.err = p.g.readOutcomeOf(err)
			}
			pr.done <- o
		}
	})
}

// landed removes a flight that was answered.
func (p *proposer) landed(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, f)
	if len(p.pending) == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// calm returns a channel that is closed when nothing is under way.
func (p *proposer) calm() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	calm := p.idle
	if len(p.pending) == 0 {
		close(calm)
		p.idle = nil
	}
	return calm
}

// end stops proposing once raft has ended, and answers what is still under way.
func (p *proposer) end() {
	p.stopped.close()
	p.proposing.Wait()
	p.mu.Lock()
	left := make([]*flight, 0, len(p.pending))
	for f := range p.pending {
		left = append(left, f)
	}
	p.mu.Unlock()
	for _, f := range left {
		p.finish(f, nil, raft.ErrRaftShutdown)
	}
}

// outcomeOf says what raft's error means for a command that was handed to it.
// raft answers ErrNotLeader, ErrLeadershipTransferInProgress and
// ErrEnqueueTimeout before it appends anything; all other errors leave it open.
func (g *Group) outcomeOf(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return g.notOwner()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return sundog.Errorf(sundog.Unavailable, "%s: not proposed: %w", g.cfg.ID, err)
	}
	return sundog.Errorf(sundog.Unknown, "%s: proposed, outcome not known: %w", g.cfg.ID, err)
}

// readOutcomeOf is outcomeOf for a barrier, which may be repeated at will.
func (g *Group) readOutcomeOf(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost):
		return g.notOwner()
	}
	return sundog.Errorf(sundog.Unavailable, "%s: %w", g.cfg.ID, err)
}

// notOwner is the error of a replica that does not lead.
func (g *Group) notOwner() error {
	_, leader := g.raft().LeaderWithID()
	e := sundog.Errorf(sundog.NotOwner, "%s is not led by this node", g.cfg.ID)
	if e.Leader = nodeOf(string(leader)); e.Leader == nodeOf(g.cfg.Self) {
		e.Leader = 0
	}
	return e
}

// Propose packs the command with others that wait into one log entry and
// returns the machine's result for it after it was applied here. The command
// must not be changed any more.
//
// Kinds: NotOwner (with Leader where known), Unavailable and Timeout: surely not
// proposed. Unknown: proposed, and whether it is or will be committed is not
// known.
func (g *Group) Propose(ctx context.Context, command []byte) (any, error) {
	if err := g.mayPropose(); err != nil {
		return nil, err
	}
	return g.waiting.submit(ctx, &proposal{command: command, done: make(chan outcome, 1)}, false)
}

// Barrier returns after an entry that was made after the call has been applied
// here: this replica led at some moment after the call began, and its machine
// has all that was acknowledged before it. All callers that wait share one
// entry, the next one that the proposer makes anyway where there is one.
//
// Kinds: NotOwner, Unavailable, Timeout.
func (g *Group) Barrier(ctx context.Context) error {
	if err := g.mayPropose(); err != nil {
		return err
	}
	_, err := g.waiting.submit(ctx, &proposal{done: make(chan outcome, 1)}, true)
	if sundog.KindOf(err) == sundog.Unknown {
		return sundog.Errorf(sundog.Timeout, "%s: no barrier in time: %w", g.cfg.ID, err)
	}
	return err
}

// mayPropose refuses early where the outcome is clear.
func (g *Group) mayPropose() error {
	if err := g.fsm.err(); err != nil {
		return sundog.Errorf(sundog.Unavailable, "%s has stopped on this node: %w", g.cfg.ID, err)
	}
	if g.raft().State() != raft.Leader {
		return g.notOwner()
	}
	return nil
}
