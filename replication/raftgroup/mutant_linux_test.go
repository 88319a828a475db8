//go:build linux && mutant

package raftgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutantAckBeforeSyncOnFileSystem: the same on a real file system.
func TestMutantAckBeforeSyncOnFileSystem(t *testing.T) {
	found := 0
	for range 8 {
		if lost, _ := crashFileSystem(t, "ack-before-sync"); len(lost) > 0 {
			found++
		}
	}
	t.Logf("the checker reported in %d of 8 crashes", found)
	require.Positive(t, found)
}
