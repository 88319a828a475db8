//go:build mutant

package table

import "os"

// Each mutant breaks one rule of the format in the shipped code path, so that
// the test of that rule can be seen to fail.
var (
	// mutantChecksumOff accepts items and buckets without their sums.
	mutantChecksumOff = os.Getenv("SUNDOG_MUTANT") == "checksum-off"
	// mutantSwapBeforeDead swaps the index word before the old item is dead.
	mutantSwapBeforeDead = os.Getenv("SUNDOG_MUTANT") == "swap-before-dead"
)
