//go:build !windows

package rpc

// resumable says that a write ended by its deadline reports exactly how many
// bytes went out, so that it can go on.
const resumable = true
