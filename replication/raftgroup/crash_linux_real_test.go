//go:build linux && !mutant

package raftgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCrashFileSystem: what the store acknowledged survives a file system that
// forgets everything that was not synced.
func TestCrashFileSystem(t *testing.T) {
	t.Parallel()
	total := 0
	for range 5 {
		lost, acks := crashFileSystem(t, "")
		require.Empty(t, lost)
		total += acks
	}
	t.Logf("5 crashes, %d acknowledged operations, none lost", total)
}
