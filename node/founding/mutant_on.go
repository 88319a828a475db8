//go:build mutant

package founding

import "os"

// mutantAcceptTwice makes a node accept a second founding, so that the test of
// the mutant can show that the checker of "never two clusters" reports.
var mutantAcceptTwice = os.Getenv("SUNDOG_MUTANT") == "accept-twice"
