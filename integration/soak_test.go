//go:build linux

package integration

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/integration/procs"
)

// TestSoak repeats the long scenarios on fresh clusters for SUNDOG_SOAK_MINUTES:
// kills and pauses judged by porcupine, then power cuts. It prints its totals.
func TestSoak(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("SUNDOG_SOAK_MINUTES"))
	if err != nil || minutes <= 0 {
		t.Skip("takes long: run by `make soak`")
	}
	end := time.Now().Add(time.Duration(minutes) * time.Minute)
	var rounds, operations, acked int
	var kills, pauses int64
	for ok := true; ok && time.Now().Before(end); rounds++ {
		ok = t.Run("round "+strconv.Itoa(rounds), func(t *testing.T) {
			rec, f := linearScenario(t, procs.Options{}, 90*time.Second)
			require.NoError(t, rec.Check(5*time.Minute, artifacts(t)))
			all, _ := rec.Len()
			operations += all
			kills, pauses = kills+f.kills.Load(), pauses+f.pauses.Load()
			n, missing := powerCutScenario(t, procs.Options{}, 2)
			require.Zero(t, missing)
			acked += n
		})
	}
	t.Logf("%d rounds: %d operations linearizable under %d kills and %d pauses; %d acknowledged writes survived power cuts",
		rounds, operations, kills, pauses, acked)
}
