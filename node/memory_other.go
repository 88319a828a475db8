//go:build !linux && !darwin

package node

// machineMemory assumes 2 GiB where the system is not asked: operators of large
// machines say --memory.
func machineMemory() int64 { return 2 << 30 }
