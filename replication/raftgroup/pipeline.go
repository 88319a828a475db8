package raftgroup

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// pipelineWindow bounds the requests that one pipeline has under way.
	pipelineWindow = 4
	// commitRefresh is the longest time for which an AppendEntries that would
	// tell the follower nothing new is left out.
	commitRefresh = time.Second
)

// pipeline is a raft.AppendPipeline: requests to one follower, a bounded number
// under way, answers in order. It fails with its first error.
type pipeline struct {
	t      *transport
	target raft.ServerAddress
	life   *lifetime
	window chan struct{}
	calls  chan *pipelined
	ready  chan raft.AppendFuture
	joined sync.WaitGroup

	mu  sync.Mutex // guards what follows
	err error
	// told is what the follower last acknowledged, if nothing is under way.
	told   tidings
	toldAt time.Time
	asked  int // requests under way
}

// tidings is what an AppendEntries without entries tells a follower.
type tidings struct{ term, prevIndex, prevTerm, commit uint64 }

// pipelined is a raft.AppendFuture.
type pipelined struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	size  int
	call  *call
	peer  *peer
	done  chan struct{}
	err   error // set before done is closed
}

// Error waits for the outcome.
func (f *pipelined) Error() error {
	<-f.done
	return f.err
}

// Start is of raft.AppendFuture.
func (f *pipelined) Start() time.Time { return f.start }

// Request is of raft.AppendFuture.
func (f *pipelined) Request() *raft.AppendEntriesRequest { return f.args }

// Response is of raft.AppendFuture: the zero answer after an error.
func (f *pipelined) Response() *raft.AppendEntriesResponse { return f.resp }

// AppendEntriesPipeline is of raft.Transport.
func (t *transport) AppendEntriesPipeline(_ raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p := &pipeline{
		t: t, target: target, life: newLifetime(),
		window: make(chan struct{}, pipelineWindow),
		calls:  make(chan *pipelined, pipelineWindow),
		ready:  make(chan raft.AppendFuture, pipelineWindow),
	}
	p.joined.Add(1)
	if !t.mux.start(func() { defer p.joined.Done(); p.collect() }) {
		return nil, raft.ErrTransportShutdown
	}
	return p, nil
}

// AppendEntries sends a request; it waits while the window is full.
//
// A request without entries that repeats what the follower has acknowledged is
// not sent, and its future never comes: an idle group then costs the follower
// nothing but heartbeats, while a commit index that moves is told at once. Leaving
// out a message is always legal; a made-up acknowledgement would not be.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	f := &pipelined{start: time.Now(), args: args, resp: resp, done: make(chan struct{})}
	if skip, err := p.nothingNew(args); skip || err != nil {
		return f, err
	}
	parts, err := encodeAppend(args)
	if err != nil {
		return nil, err
	}
	select {
	case p.window <- struct{}{}:
	case <-p.life.Done():
		return nil, p.failure()
	case <-p.t.life.Done():
		return nil, raft.ErrTransportShutdown
	}
	for _, b := range parts {
		f.size += len(b)
	}
	f.call, f.peer, err = p.t.begin(p.target, kindAppend, false, 0, parts...)
	if err != nil {
		p.fail(err)
		return nil, err
	}
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	p.calls <- f // has room: the window is as large
	return f, nil
}

func tidingsOf(a *raft.AppendEntriesRequest) tidings {
	return tidings{a.Term, a.PrevLogEntry, a.PrevLogTerm, provenCommit(a)}
}

func (p *pipeline) nothingNew(args *raft.AppendEntriesRequest) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false, p.err
	}
	return len(args.Entries) == 0 && p.asked == 0 && p.told == tidingsOf(args) && time.Since(p.toldAt) < commitRefresh, nil
}

// collect hands the answers to raft in order of the requests.
func (p *pipeline) collect() {
	for {
		select {
		case f := <-p.calls:
			p.finish(f)
		case <-p.life.Done():
			return
		case <-p.t.life.Done():
			return
		}
	}
}

func (p *pipeline) finish(f *pipelined) {
	got, err := p.await(f)
	p.mu.Lock()
	p.asked--
	if err == nil {
		*f.resp = *(got.(*raft.AppendEntriesResponse))
		if p.told = (tidings{}); f.resp.Success && len(f.args.Entries) == 0 {
			p.told, p.toldAt = tidingsOf(f.args), time.Now()
		}
	}
	p.mu.Unlock()
	if err != nil {
		p.fail(err)
	}
	f.err = err
	close(f.done)
	select {
	case p.ready <- f:
	case <-p.life.Done(): // raft has stopped reading
	}
	<-p.window
}

func (p *pipeline) await(f *pipelined) (any, error) {
	timer := time.NewTimer(p.t.timeout(f.size))
	defer timer.Stop()
	select {
	case r := <-f.call.done:
		return r.resp, r.err
	case <-timer.C:
		f.peer.forget(f.call)
		return nil, raft.ErrPipelineShutdown
	case <-p.life.Done():
	case <-p.t.life.Done():
	}
	f.peer.forget(f.call)
	return nil, raft.ErrPipelineShutdown
}

func (p *pipeline) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
}

func (p *pipeline) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	return raft.ErrPipelineShutdown
}

// Consumer is where raft takes the answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.ready }

// Close gives up what is under way.
func (p *pipeline) Close() error {
	p.fail(raft.ErrPipelineShutdown)
	p.life.close()
	p.joined.Wait()
	for {
		select {
		case f := <-p.calls:
			f.peer.forget(f.call)
		default:
			return nil
		}
	}
}
