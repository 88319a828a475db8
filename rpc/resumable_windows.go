//go:build windows

package rpc

// resumable is false here: a write ended by its deadline is a cancelled
// overlapped operation, whose count is not to be relied on. The connection ends.
const resumable = false
