// Command sundog is the whole of Sundog in one binary: the server (start), its
// administration and the commands that read and write data. docs/cli.md lists
// commands, output fields and exit codes; each command's --help has its flags.
//
// # Goroutines
//
// start runs the server on one, which is left only by a second signal; commands
// that talk to a cluster have one that waits for a signal; load has one for each
// lane. All others than that of start are joined before the command returns.
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
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environ: os.Environ, signals: signals,
	}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}
