package client

import (
	"math/rand/v2"
	"time"

	"github.com/sundog-kv/sundog"
)

// action is what to do after an attempt that ended with an error.
type action uint8

const (
	actEnd       action = iota // hand the error to the caller
	actUnknown                 // the mutation may have executed: end with Unknown
	actRedirect                // ask the node that leads
	actRefresh                 // get the newer map, then ask again
	actElsewhere               // pause, then ask, another node by preference
)

// reason labels a retry in [Stats].
type reason uint8

const (
	reasonNotOwner reason = iota
	reasonStale
	reasonUnavailable
	reasonLost
	reasonSplit
	reasons
)

// judge decides by the kind of an error that came back from a request which was
// sent, or could not be sent, and by whether the request changes data. The rule
// of outcomes: a mutation goes out again only where the error proves that it was
// not executed.
func judge(kind sundog.Kind, mutates bool) (action, reason) {
	switch kind {
	case sundog.NotOwner:
		return actRedirect, reasonNotOwner
	case sundog.Stale:
		return actRefresh, reasonStale
	case sundog.Unavailable:
		return actElsewhere, reasonUnavailable
	case sundog.Unknown, sundog.Corrupt, sundog.Closed, sundog.Internal:
		// Sent whole, then no answer, an unreadable one, one of a node on its way
		// down, or a fault in the server: all may hide an execution.
		if mutates {
			return actUnknown, reasonLost
		}
		if kind == sundog.Internal {
			return actEnd, reasonLost
		}
		return actElsewhere, reasonLost
	case sundog.Timeout:
		// The server dropped it before serving: our own deadline, or for a read
		// the attempt's share of it, is about over.
		if mutates {
			return actEnd, reasonLost
		}
		return actElsewhere, reasonLost
	}
	return actEnd, reasonLost
}

// The pauses between attempts, and how many redirects are followed without one.
const (
	minPause = 10 * time.Millisecond
	maxPause = 500 * time.Millisecond
	maxHops  = 4
	// minAttempt is the least time an attempt of a read is given.
	minAttempt = 200 * time.Millisecond
	// lastChance is the least time left in which a mutation is sent once more:
	// with less, its answer may come too late and leave the outcome unknown,
	// where it is known not to be done now.
	lastChance = 20 * time.Millisecond
)

// pauseFor is the n-th pause of a call, n from 0: doubling from minPause to
// maxPause, of which a random half is taken off so that clients spread.
func pauseFor(n int) time.Duration {
	d := maxPause
	if n < 6 {
		d = min(maxPause, minPause<<n)
	}
	return d/2 + rand.N(d/2)
}

// attemptShare is how long one attempt of a read (and the dialling for any
// attempt) may take when left is what remains of the call: half, so that a
// silent node leaves time to ask another, but no less than minAttempt.
func attemptShare(left time.Duration) time.Duration {
	return min(left, max(left/2, minAttempt))
}
