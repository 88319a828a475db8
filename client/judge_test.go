package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// TestJudge is the whole table of outcomes: no kind may send a mutation again
// that can have been executed.
func TestJudge(t *testing.T) {
	safe := map[sundog.Kind]bool{sundog.NotOwner: true, sundog.Stale: true, sundog.Unavailable: true}
	unsure := map[sundog.Kind]bool{sundog.Unknown: true, sundog.Corrupt: true, sundog.Closed: true, sundog.Internal: true}
	for kind := sundog.Invalid; kind <= sundog.Internal; kind++ {
		act, _ := judge(kind, true)
		switch {
		case safe[kind]:
			require.Contains(t, []action{actRedirect, actRefresh, actElsewhere}, act, kind)
		case unsure[kind]:
			require.Equal(t, actUnknown, act, kind)
		default:
			require.Equal(t, actEnd, act, kind)
		}
		act, _ = judge(kind, false)
		require.NotEqual(t, actUnknown, act, "a read has no unknown outcome: %v", kind)
	}
	for _, kind := range []sundog.Kind{sundog.Unknown, sundog.Timeout, sundog.Corrupt, sundog.Closed} {
		act, why := judge(kind, false)
		require.Equal(t, actElsewhere, act, kind)
		require.Equal(t, reasonLost, why)
	}
}

func TestPauseGrowsWithinBounds(t *testing.T) {
	for n := range 100 {
		d := pauseFor(n)
		require.LessOrEqual(t, d, maxPause)
		require.GreaterOrEqual(t, d, minPause/2)
	}
	require.Less(t, pauseFor(0), minPause)
	require.GreaterOrEqual(t, pauseFor(30), maxPause/2)
}

func TestAttemptShare(t *testing.T) {
	require.Equal(t, 2500*time.Millisecond, attemptShare(5*time.Second))
	require.Equal(t, minAttempt, attemptShare(300*time.Millisecond))
	require.Equal(t, 50*time.Millisecond, attemptShare(50*time.Millisecond))
}
