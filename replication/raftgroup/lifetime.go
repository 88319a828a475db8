package raftgroup

import (
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// lifetime is the context of what an object starts by itself: it ends when the
// object is closed.
type lifetime struct {
	once sync.Once
	end  chan struct{}
}

func newLifetime() *lifetime { return &lifetime{end: make(chan struct{})} }

// close ends it and reports whether this was the first time.
func (l *lifetime) close() (first bool) {
	l.once.Do(func() { close(l.end); first = true })
	return first
}

func (l *lifetime) over() bool {
	select {
	case <-l.end:
		return true
	default:
		return false
	}
}

// Deadline is of context.Context: there is none.
func (l *lifetime) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is of context.Context.
func (l *lifetime) Done() <-chan struct{} { return l.end }

// Err is of context.Context: kind Closed once it is over.
func (l *lifetime) Err() error {
	if l.over() {
		return sundog.Closed
	}
	return nil
}

// Value is of context.Context: there are none.
func (l *lifetime) Value(any) any { return nil }
