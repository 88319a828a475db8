package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog/node"
)

func (a *app) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a server until SIGTERM or SIGINT",
		Long: `Run a server until SIGTERM or SIGINT; a second signal ends it at once.

Every flag may also stand in the environment (--bootstrap-expect as
SUNDOG_BOOTSTRAP_EXPECT) or in the YAML file of --config (bootstrap-expect: 3).
A flag wins over the environment, which wins over the file.`,
		Example: `  One node:
    sundog start --data /var/lib/sundog --bootstrap-expect 1
  Three on one machine:
    sundog start --data d1 --bootstrap-expect 3
    sundog start --data d2 --listen :7410 --gossip :7411 --http :7412 --join 127.0.0.1:7401 --bootstrap-expect 3
    sundog start --data d3 --listen :7420 --gossip :7421 --http :7422 --join 127.0.0.1:7401 --bootstrap-expect 3`,
		Args: args,
		RunE: a.local(a.start),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	startFlags(flags)
	flags.String("config", "", "YAML `FILE` with these settings")
	return cmd
}

// startedJSON is the line of start --json, printed once the server is up.
type startedJSON struct {
	ID     string `json:"id"`
	Listen string `json:"listen"`
	Gossip string `json:"gossip"`
	HTTP   string `json:"http"`
}

func (a *app) start(cmd *cobra.Command, _ []string) error {
	log, err := a.logger("info")
	if err != nil {
		return err
	}
	cfg, err := loadConfig(cmd.Flags(), a.environ())
	if err != nil {
		return err
	}
	cfg.Logger = log
	if err := cfg.Validate(); err != nil {
		return err
	}
	defer manyProcessors(a.env("GOMAXPROCS", ""), log)()
	return untilSignalled(cmd.Context(), a.signals, log, func(ctx context.Context) error {
		return a.serve(ctx, cfg, log)
	})
}

// signalEcho is how long after the first signal another one is taken for its
// echo: a terminal and a supervisor may each send one.
const signalEcho = time.Second

// untilSignalled runs serve until it ends or a signal says so; then serve's
// context ends and it may close what it has, until a second signal, which counts
// from signalEcho after the first. One that is left so keeps running: the process
// is to exit.
func untilSignalled(ctx context.Context, signals <-chan os.Signal, log *slog.Logger, serve func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		log.Info("closing; another signal ends the process at once", "signal", s.String())
		cancel()
	case <-ctx.Done():
	}
	for first := time.Now(); ; {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if time.Since(first) >= signalEcho {
				return fmt.Errorf("ended by a second signal (%v) before all was closed; nothing acknowledged is lost", s)
			}
		}
	}
}

// serve runs a node until ctx ends; that alone is no error.
func (a *app) serve(ctx context.Context, cfg node.Config, log *slog.Logger) error {
	n, err := node.Open(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // told to end while it began
		}
		return err
	}
	addrs := n.Addrs()
	a.show(startedJSON{n.ID().String(), addrs.Listen, addrs.Gossip, addrs.HTTP}, func(w io.Writer) {
		fmt.Fprintf(w, "node %s: listen %s, gossip %s, http %s\n", n.ID(), addrs.Listen, addrs.Gossip, addrs.HTTP)
	})
	if err := a.stdout.failed(); err != nil { // told now, and by the exit code at the end
		log.Warn("the addresses could not be printed", "err", err)
	}
	// A refusal while it enters is final: a supervisor should see the process end,
	// not serve nobody. Once admitted, only a signal ends it.
	refusal := n.Admitted(ctx)
	if refusal == nil || ctx.Err() != nil {
		refusal = nil
		<-ctx.Done()
	}
	if err := n.Close(); err != nil {
		return err
	}
	log.Info("closed")
	return refusal
}
