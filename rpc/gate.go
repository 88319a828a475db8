package rpc

import "sync"

// gate bounds what one connection has in service, by number and by bytes. Only
// the connection's reader waits at it.
type gate struct {
	maxCount int
	maxBytes int64
	wake     chan struct{} // one token: something left while the reader waited

	mu      sync.Mutex // guards the fields below
	count   int
	bytes   int64
	waiting bool
}

func newGate(l Limits) *gate {
	return &gate{maxCount: l.MaxInflight, maxBytes: l.MaxInflightBytes, wake: make(chan struct{}, 1)}
}

// enter waits for room for one message of that size and takes it; false when
// done ended the wait. A message always fits an empty gate.
func (g *gate) enter(size int64, done <-chan struct{}) bool {
	for {
		g.mu.Lock()
		if g.count == 0 || g.count < g.maxCount && g.bytes+size <= g.maxBytes {
			g.count++
			g.bytes += size
			g.waiting = false
			g.mu.Unlock()
			return true
		}
		g.waiting = true
		g.mu.Unlock()
		select {
		case <-g.wake:
		case <-done:
			return false
		}
	}
}

// swap replaces a request's bytes by its answer's.
func (g *gate) swap(old, size int64) {
	g.mu.Lock()
	g.bytes += size - old
	g.mu.Unlock()
}

// leave gives the room of one message back.
func (g *gate) leave(size int64) {
	g.mu.Lock()
	g.count--
	g.bytes -= size
	waiting := g.waiting
	g.mu.Unlock()
	if waiting {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// empty reports whether nothing is in service.
func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count == 0
}
