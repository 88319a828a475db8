package rpc

import (
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
)

// Metrics counts what servers and dialled connections of one process do; share
// one. The zero Metrics counts; a nil one does nothing. [NewMetrics] shows it to
// Prometheus.
type Metrics struct {
	conns      [2]atomic.Int64 // open now, by side
	accepted   atomic.Int64    // connections a server took
	dialled    atomic.Int64    // connections that shook hands
	dialErrors atomic.Int64    // dials that did not
	refused    [refusals]atomic.Int64
	frames     [2]atomic.Int64 // in, out
	bytes      [2]atomic.Int64 // in, out
	writes     atomic.Int64    // write calls: frames out / writes = coalescing
	requests   [methodSlots]atomic.Int64
	seconds    [methodSlots]atomic.Int64 // nanoseconds in service
	errors     [kindSlots]atomic.Int64
	panics     atomic.Int64
	expired    atomic.Int64 // requests whose budget had passed before service
	stalled    atomic.Int64 // connections given up: half a frame, unread writes
}

// Sides of a connection and directions, as indexes.
const (
	sideServer = 0
	sideDialer = 1
	dirIn      = 0
	dirOut     = 1
)

// Reasons why a server closed a connection before it served it, as indexes.
const (
	refusedMagic  = iota // not our protocol
	refusedHello         // malformed, too old, too new
	refusedSilent        // no hello in time, or gone
	refusedProof         // node identity not proved
	refusedAdmit         // Admit said no
	refusedFull          // too many connections
	refusals
)

var refusalNames = [refusals]string{"protocol", "hello", "silent", "proof", "admit", "full"}

// Tables by method and kind end in one slot for all numbers above.
const (
	methodSlots = 128
	kindSlots   = 32
)

func (m *Metrics) conn(side int, delta int64) {
	if m != nil {
		m.conns[side].Add(delta)
	}
}

func (m *Metrics) accept() {
	if m != nil {
		m.accepted.Add(1)
	}
}

func (m *Metrics) dial(ok bool) {
	switch {
	case m == nil:
	case ok:
		m.dialled.Add(1)
	default:
		m.dialErrors.Add(1)
	}
}

func (m *Metrics) refuse(reason int) {
	if m != nil {
		m.refused[reason].Add(1)
	}
}

func (m *Metrics) frameIn(size int) {
	if m != nil {
		m.frames[dirIn].Add(1)
		m.bytes[dirIn].Add(int64(size))
	}
}

func (m *Metrics) wrote(frames int, size int64) {
	if m != nil {
		m.writes.Add(1)
		m.frames[dirOut].Add(int64(frames))
		m.bytes[dirOut].Add(size)
	}
}

// served counts one request that a server answered after d.
func (m *Metrics) served(method Method, d time.Duration) {
	if m != nil {
		slot := min(int(method), methodSlots-1)
		m.requests[slot].Add(1)
		m.seconds[slot].Add(int64(d))
	}
}

func (m *Metrics) answeredError(k sundog.Kind) {
	if m != nil {
		m.errors[min(int(k), kindSlots-1)].Add(1)
	}
}

func (m *Metrics) panicked() {
	if m != nil {
		m.panics.Add(1)
	}
}

func (m *Metrics) expire() {
	if m != nil {
		m.expired.Add(1)
	}
}

func (m *Metrics) stall() {
	if m != nil {
		m.stalled.Add(1)
	}
}
