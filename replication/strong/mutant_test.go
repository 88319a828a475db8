//go:build mutant

package strong

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Reads without a barrier, at any replica: the checker must see it.
func TestMutantNoBarrierIsCaught(t *testing.T) {
	mutantNoBarrier = true
	defer func() { mutantNoBarrier = false }()
	rec := recordHistory(t, 3*time.Second, 500)
	require.ErrorContains(t, rec.Check(time.Minute, t.TempDir()), "not linearizable")
}
