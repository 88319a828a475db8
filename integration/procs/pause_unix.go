//go:build unix

package procs

import "syscall"

// Pause stops the process (SIGSTOP): its sockets stay open and nobody answers.
func (n *Node) Pause() error { return syscall.Kill(n.Pid(), syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (n *Node) Resume() error { return syscall.Kill(n.Pid(), syscall.SIGCONT) }
