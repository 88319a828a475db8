//go:build mutant

package table

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants: every checker reports the fault it is there for.
func TestMutants(t *testing.T) {
	t.Run("checksum-off", func(t *testing.T) {
		mutantChecksumOff = true
		defer func() { mutantChecksumOff = false }()
		require.NotEmpty(t, acceptsTorn(t))
		report, _ := acceptsReused(t)
		require.NotEmpty(t, report)
		t.Log(report)
	})
	t.Run("swap-before-dead", func(t *testing.T) {
		mutantSwapBeforeDead = true
		defer func() { mutantSwapBeforeDead = false }()
		report := breaksOrder(t)
		require.NotEmpty(t, report)
		t.Log(report)
	})
}
