//go:build mutant

package strong

import "os"

// mutantNoBarrier lets every replica answer reads from what it has applied: the
// fault that the linearizability checker must find.
var mutantNoBarrier = os.Getenv("SUNDOG_MUTANT") == "no-barrier"
