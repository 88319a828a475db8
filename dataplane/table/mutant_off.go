//go:build !mutant

package table

// Mutants are faults that a checker must find; see mutant_on.go.
const (
	mutantChecksumOff    = false
	mutantSwapBeforeDead = false
)
