// Command sundog is the whole of Sundog in one binary: the server (start), its
// administration and the commands that read and write data. docs/cli.md lists
// commands, output fields and exit codes; each command's --help has its flags.
//
// # Goroutines
//
// start runs the server on one, which is left only by a second signal. A command
// that talks to a cluster runs on one beside one that waits for a signal, reads
// stdin and devices on one a read, and load has one for each lane. All are joined
// before the command returns, but for those that a signal or --timeout leaves in
// a read or write that does not come back; the process exits then.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// commit is the source revision, set by the linker.
var commit = "unknown"

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	a := &app{
		stdin: os.Stdin, stdout: &output{w: os.Stdout}, stderr: os.Stderr,
		environ: os.Environ, signals: signals,
		notify: func(more ...os.Signal) { signal.Notify(signals, more...) },
	}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}
