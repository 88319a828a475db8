package procs

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bindToParent makes the kernel kill the child when the thread that started it
// ends (prctl PR_SET_PDEATHSIG), which the spawner's thread does only with this
// process.
func bindToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (c *Cluster) spawner() {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := range c.spawn {
		start()
	}
}
