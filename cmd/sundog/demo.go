package main

import (
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/cmd/sundog/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var nodes int
	var exit bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a cluster survive the loss of a node, with real data",
		Long: `Starts server processes on loopback, loads the embedded records (12,000 packages
of Debian 12), reads them back, kills a leader with -9 under load, accounts for every
acknowledged write, restarts the node and compares all replicas. Without --exit the
cluster stays up until Ctrl-C. The data is in a temporary folder, removed at the end,
also when a signal ends the demo.`,
		Args: args,
		RunE: a.local(func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			a.alsoNotify(syscall.SIGQUIT, syscall.SIGPIPE)
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			opts := demo.Options{Binary: binary, Nodes: nodes, Stay: !exit && !a.json, Out: a.stdout, Bars: a.stdout.terminal()}
			if a.json {
				opts.Out = nil
			}
			report, err := demo.Run(ctx, opts)
			if err != nil && a.interrupted.Load() {
				return interruptedBy(nil) // what it was about is gone
			}
			if err != nil {
				return err
			}
			a.show(report, func(io.Writer) {}) // a person has read the story
			if report.Lost > 0 || !report.EqualReplicas {
				return sundog.Errorf(sundog.Internal, "the demo ended badly: %d lost, replicas equal: %t", report.Lost, report.EqualReplicas)
			}
			return nil
		}),
	}
	cmd.Flags().IntVar(&nodes, "nodes", 3, "server processes to start, 3 or more")
	cmd.Flags().BoolVar(&exit, "exit", false, "end when the story is told")
	return cmd
}
