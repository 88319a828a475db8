//go:build !mutant

package raftgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCrashDropsUnsyncedWrites: whatever was acknowledged is there after every
// write since the last completed sync was dropped.
func TestCrashDropsUnsyncedWrites(t *testing.T) {
	t.Parallel()
	total := 0
	for seed := range uint64(40) {
		lost, acks := crashOnce(t, seed)
		require.Empty(t, lost, "seed %d", seed)
		total += acks
	}
	t.Logf("40 crashes, %d acknowledged operations, none lost", total)
	require.Greater(t, total, 1000)
}
