package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

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
  Each of three on one machine (other ports and directory each):
    sundog start --data d1 --listen :7400 --gossip :7401 --http :7402 \
      --join 127.0.0.1:7401,127.0.0.1:7411 --bootstrap-expect 3`,
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
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, cfg, log) }()
	select {
	case err := <-ended:
		return err
	case s := <-a.signals:
		log.Info("closing; another signal ends the process at once", "signal", s.String())
		cancel()
	case <-cmd.Context().Done():
	}
	select {
	case err := <-ended:
		return err
	case s := <-a.signals:
		return fmt.Errorf("ended by a second signal (%v) before all was closed; nothing acknowledged is lost", s)
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
	<-ctx.Done()
	if err := n.Close(); err != nil {
		return err
	}
	log.Info("closed")
	return nil
}
