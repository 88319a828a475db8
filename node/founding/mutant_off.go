//go:build !mutant

package founding

// mutantAcceptTwice makes a node accept a second founding; see mutant_on.go.
const mutantAcceptTwice = false
