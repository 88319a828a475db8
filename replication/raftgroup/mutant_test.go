//go:build mutant

package raftgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutantAckBeforeSync: the crash test must notice a store that answers
// before its sync.
func TestMutantAckBeforeSync(t *testing.T) {
	mutantAckBeforeSync = true
	defer func() { mutantAckBeforeSync = false }()
	found := 0
	for seed := range uint64(20) {
		lost, _ := crashOnce(t, seed)
		if len(lost) > 0 {
			found++
		}
	}
	t.Logf("the checker reported in %d of 20 crashes", found)
	require.Greater(t, found, 5)
}

// TestMutantHeartbeatHandler: with raft's heartbeat handler honoured the same
// trials must lose entries.
func TestMutantHeartbeatHandler(t *testing.T) {
	mutantHeartbeatHandler = true
	defer func() { mutantHeartbeatHandler = false }()
	granted, violations := termTrials(t, 200)
	t.Logf("200 trials, %d votes granted, %d entries of an older term acknowledged after the vote", granted, violations)
	require.Positive(t, violations)
}
