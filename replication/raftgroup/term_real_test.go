//go:build !mutant

package raftgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTermNeverGoesBack: no entry is lost to the race of issue 695.
func TestTermNeverGoesBack(t *testing.T) {
	t.Parallel()
	granted, violations := termTrials(t, 200)
	t.Logf("200 trials, %d votes granted, %d entries of an older term acknowledged after the vote", granted, violations)
	require.Zero(t, violations)
	require.Greater(t, granted, 20, "the schedule was not played")
}
