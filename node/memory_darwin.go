package node

import "golang.org/x/sys/unix"

// machineMemory returns the machine's memory in bytes, 0 when it is not known.
func machineMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
