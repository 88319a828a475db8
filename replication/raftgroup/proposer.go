package raftgroup

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	sundog "github.com/sundog-kv/sundog"
)

// proposer packs what waits in a group into log entries. While one entry is on
// its way to disks and peers the next one gathers, so that batches grow by
// themselves with the load; a few entries are under way at a time.
//
// Its goroutine hands entries to raft in order, a second one (the completer)
// takes their outcomes in the same order.
type proposer struct {
	g       *Group
	wake    chan struct{}
	slots   chan struct{} // a token for each entry under way
	flights chan *flight
	stopped *lifetime
	ended   chan struct{} // closed when both goroutines have ended

	mu       sync.Mutex // guards what follows
	closed   bool
	queue    []*proposal // commands
	bytes    int
	barriers []*proposal
	pending  map[*flight]struct{}
}

// proposal is one caller that waits. Its state says whose it is.
type proposal struct {
	command []byte
	state   atomic.Int32
	done    chan outcome // buffered: at most one outcome comes
}

const (
	proposalQueued = iota
	proposalTaken  // in an entry: the outcome is raft's
	proposalGone   // its caller has left before that
)

type outcome struct {
	result any
	err    error
}

// flight is an entry that was handed to raft.
type flight struct {
	future   raft.ApplyFuture
	commands []*proposal
	barriers []*proposal
	once     sync.Once
}

func newProposer(g *Group) *proposer {
	return &proposer{
		g: g, wake: make(chan struct{}, 1), slots: make(chan struct{}, g.cfg.MaxInFlight),
		flights: make(chan *flight, g.cfg.MaxInFlight), stopped: newLifetime(), ended: make(chan struct{}),
		pending: make(map[*flight]struct{}),
	}
}

func (p *proposer) start() {
	var both sync.WaitGroup
	both.Go(func() {
		defer close(p.flights)
		p.run()
	})
	both.Go(p.complete)
	go func() { both.Wait(); close(p.ended) }()
}

// submit queues a command, or a barrier when command is nil, and waits for its
// outcome. Unavailable and Timeout: surely not proposed.
func (p *proposer) submit(ctx context.Context, pr *proposal, barrier bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, sundog.Errorf(sundog.Timeout, "not proposed: %w", err)
	}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, sundog.Errorf(sundog.Unavailable, "%s is closing on this node", p.g.cfg.ID)
	case barrier:
		p.barriers = append(p.barriers, pr)
	case p.bytes > 0 && p.bytes+len(pr.command) > p.g.cfg.MaxQueueBytes:
		p.mu.Unlock()
		return nil, sundog.Errorf(sundog.Unavailable, "%s: %d bytes of commands wait already", p.g.cfg.ID, p.g.cfg.MaxQueueBytes)
	default:
		p.queue = append(p.queue, pr)
		p.bytes += len(pr.command)
	}
	p.mu.Unlock()
	p.signal()
	select {
	case o := <-pr.done:
		return o.result, o.err
	case <-ctx.Done():
	}
	if pr.state.CompareAndSwap(proposalQueued, proposalGone) {
		return nil, sundog.Errorf(sundog.Timeout, "not proposed in time: %w", ctx.Err())
	}
	select {
	case o := <-pr.done: // it came at the same moment
		return o.result, o.err
	default:
		return nil, sundog.Errorf(sundog.Unknown, "proposed, and not known to be committed in time: %w", ctx.Err())
	}
}

func (p *proposer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// rouse makes the proposer append an entry though nobody waits for one.
func (p *proposer) rouse() {
	p.mu.Lock()
	if !p.closed {
		p.barriers = append(p.barriers, &proposal{done: make(chan outcome, 1)})
	}
	p.mu.Unlock()
	p.signal()
}

// run makes entries of what waits until the proposer is stopped.
func (p *proposer) run() {
	for {
		select {
		case <-p.wake:
		case <-p.stopped.Done():
			return
		}
		for {
			select {
			case p.slots <- struct{}{}:
			case <-p.stopped.Done():
				return
			}
			f := p.take()
			if f == nil {
				<-p.slots
				break
			}
			p.propose(f)
		}
	}
}

// take makes a flight of what waits, within the bounds of one entry; nil when
// nobody waits.
func (p *proposer) take() *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &flight{}
	size, n := 0, 0
	for _, pr := range p.queue {
		if len(f.commands) > 0 && (size+len(pr.command) > p.g.cfg.MaxBatchBytes || len(f.commands) >= p.g.cfg.MaxBatch) {
			break
		}
		n++
		p.bytes -= len(pr.command)
		if pr.state.CompareAndSwap(proposalQueued, proposalTaken) {
			f.commands = append(f.commands, pr)
			size += len(pr.command)
		}
	}
	clear(p.queue[:n])
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	for _, pr := range p.barriers {
		if pr.state.CompareAndSwap(proposalQueued, proposalTaken) {
			f.barriers = append(f.barriers, pr)
		}
	}
	p.barriers = nil
	if len(f.commands) == 0 && len(f.barriers) == 0 {
		return nil
	}
	p.pending[f] = struct{}{}
	return f
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
	f.future = p.g.raft().Apply(encodeEntry(p.g.cfg.Clock(), commands), 0)
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
	p.mu.Lock()
	delete(p.pending, f)
	p.mu.Unlock()
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

// stop takes no more proposals and refuses those that wait.
func (p *proposer) stop() {
	p.mu.Lock()
	p.closed = true
	waiting := append(p.queue, p.barriers...)
	p.queue, p.barriers, p.bytes = nil, nil, 0
	p.mu.Unlock()
	p.stopped.close()
	for _, pr := range waiting {
		if pr.state.CompareAndSwap(proposalQueued, proposalGone) {
			pr.done <- outcome{err: sundog.Errorf(sundog.Unavailable, "%s is closing on this node", p.g.cfg.ID)}
		}
	}
}

// abandon answers what is still under way after raft has ended: raft forgets the
// futures of entries that were committed and not yet applied at that moment.
func (p *proposer) abandon() {
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
	return g.proposer.submit(ctx, &proposal{command: command, done: make(chan outcome, 1)}, false)
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
	_, err := g.proposer.submit(ctx, &proposal{done: make(chan outcome, 1)}, true)
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
