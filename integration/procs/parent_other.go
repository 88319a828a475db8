//go:build !linux

package procs

import "os/exec"

// bindToParent is nothing here: if this process is killed, its servers stay.
func bindToParent(*exec.Cmd) {}

func (c *Cluster) spawner() {
	defer close(c.done)
	for start := range c.spawn {
		start()
	}
}
