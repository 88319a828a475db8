//go:build !mutant

package strong

// mutantNoBarrier would let every replica answer reads from what it has applied.
const mutantNoBarrier = false
