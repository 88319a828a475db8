package raftgroup

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
)

// proposals are the commands and barriers that wait in a group until its raft
// instance, the present one or the next, takes them into an entry.
type proposals struct {
	cfg  *Config
	wake chan struct{} // one token: something came

	mu       sync.Mutex // guards what follows
	closed   bool
	queue    []*proposal // commands
	bytes    int
	barriers []*proposal
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

func newProposals(cfg *Config) *proposals {
	return &proposals{cfg: cfg, wake: make(chan struct{}, 1)}
}

// submit queues a command, or a barrier when command is nil, and waits for its
// outcome. Unavailable and Timeout: surely not proposed.
func (q *proposals) submit(ctx context.Context, pr *proposal, barrier bool) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, sundog.Errorf(sundog.Timeout, "not proposed: %w", err)
	}
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return nil, sundog.Errorf(sundog.Unavailable, "%s is closing on this node", q.cfg.ID)
	case barrier:
		q.barriers = append(q.barriers, pr)
	case q.bytes > 0 && q.bytes+len(pr.command) > q.cfg.MaxQueueBytes:
		q.mu.Unlock()
		return nil, sundog.Errorf(sundog.Unavailable, "%s: %d bytes of commands wait already", q.cfg.ID, q.cfg.MaxQueueBytes)
	default:
		q.queue = append(q.queue, pr)
		q.bytes += len(pr.command)
	}
	q.mu.Unlock()
	q.signal()
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

func (q *proposals) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// rouse makes the proposer append an entry though nobody waits for one.
func (q *proposals) rouse() {
	q.mu.Lock()
	if !q.closed {
		q.barriers = append(q.barriers, &proposal{done: make(chan outcome, 1)})
	}
	q.mu.Unlock()
	q.signal()
}

// take makes a flight of what waits, within the bounds of one entry; nil when
// nobody waits.
func (q *proposals) take() *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := &flight{}
	size, n := 0, 0
	for _, pr := range q.queue {
		if len(f.commands) > 0 && (size+len(pr.command) > q.cfg.MaxBatchBytes || len(f.commands) >= q.cfg.MaxBatch) {
			break
		}
		n++
		q.bytes -= len(pr.command)
		if pr.state.CompareAndSwap(proposalQueued, proposalTaken) {
			f.commands = append(f.commands, pr)
			size += len(pr.command)
		}
	}
	clear(q.queue[:n])
	if q.queue = q.queue[n:]; len(q.queue) == 0 {
		q.queue = nil
	}
	for _, pr := range q.barriers {
		if pr.state.CompareAndSwap(proposalQueued, proposalTaken) {
			f.barriers = append(f.barriers, pr)
		}
	}
	q.barriers = nil
	if len(f.commands) == 0 && len(f.barriers) == 0 {
		return nil
	}
	return f
}

// stop takes no more proposals and refuses those that wait.
func (q *proposals) stop() {
	q.mu.Lock()
	q.closed = true
	waiting := append(q.queue, q.barriers...)
	q.queue, q.barriers, q.bytes = nil, nil, 0
	q.mu.Unlock()
	for _, pr := range waiting {
		if pr.state.CompareAndSwap(proposalQueued, proposalGone) {
			pr.done <- outcome{err: sundog.Errorf(sundog.Unavailable, "%s is closing on this node", q.cfg.ID)}
		}
	}
}
