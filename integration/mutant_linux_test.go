//go:build mutant

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/integration/procs"
)

// mutant is a broken build: one switch of the shipped code turned the wrong way.
func mutant(t *testing.T, name string) procs.Options {
	return procs.Options{Binary: binary(t, "mutant"), Env: []string{"SUNDOG_MUTANT=" + name}}
}

// TestMutantLinearizable: reads without a barrier are caught by porcupine.
func TestMutantLinearizable(t *testing.T) {
	rec, _ := linearScenario(t, mutant(t, "no-barrier"), 30*time.Second)
	require.ErrorContains(t, rec.Check(2*time.Minute, t.TempDir()), "not linearizable")
}

// TestMutantPowerCut: acknowledging before the sync loses writes when the power is
// cut.
func TestMutantPowerCut(t *testing.T) {
	_, missing := powerCutScenario(t, mutant(t, "ack-before-sync"), 3)
	require.Positive(t, missing)
}
