package raftgroup

import (
	"sync"
	"time"
)

// intake bounds the bytes of AppendEntries requests that wait in the inboxes of
// all groups of a node or are being served. A reader whose request has no room
// stops reading its connection, so that the peer's writes wait; heartbeats, votes
// and answers have a connection of their own and wait for nothing.
//
// Progress does not depend on any group: a reader waits no longer than
// intakeWait. Then a request of a group that holds nothing is let in whatever the
// others hold, and one of a group that holds something is refused as busy: its
// sender repeats it. So the bytes are at most the limit and one request for each
// group, and for each connection the request that waits.
type intake struct {
	limit int64 // of all groups
	share int64 // of one group that has something already

	mu    sync.Mutex // guards what follows and each transport's held
	total int64
	room  chan struct{} // closed, and made anew, when bytes are given back
}

const (
	defaultInboxBytes = 128 << 20
	intakeWait        = 250 * time.Millisecond
)

// newIntake makes one with a limit; a group's share is more than a quarter, which
// is room for as many requests of 32 full entries as a leader has under way.
func newIntake(limit int64) *intake {
	return &intake{limit: limit, share: limit/4 + limit/32, room: make(chan struct{})}
}

// admit takes n bytes for the transport; false when there is no room. It waits
// only if wait is set.
func (k *intake) admit(t *transport, n int64, wait bool) bool {
	var timeout <-chan time.Time
	if wait {
		timer := time.NewTimer(intakeWait)
		defer timer.Stop()
		timeout = timer.C
	}
	for last := !wait; ; {
		k.mu.Lock()
		fits := k.total+n <= k.limit && (t.held == 0 || t.held+n <= k.share)
		if fits || last && t.held == 0 {
			k.total += n
			t.held += n
			k.mu.Unlock()
			return true
		}
		room := k.room
		k.mu.Unlock()
		if last {
			return false
		}
		select {
		case <-room:
		case <-timeout:
			last = true
		case <-t.life.Done():
			last = true
		}
	}
}

// give returns n bytes of the transport's.
func (k *intake) give(t *transport, n int64) {
	if n == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total -= n
	t.held -= n
	close(k.room)
	k.room = make(chan struct{})
}
