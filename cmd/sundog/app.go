package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// Deadlines of commands that were given no --timeout.
const (
	dataTimeout  = client.DefaultTimeout
	adminTimeout = 30 * time.Second // pool changes wait for groups to start, check for hashes
)

const defaultAddr = "127.0.0.1:7400"

// app is one run of the program, with all it takes from and gives to the world.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        func() []string
	signals        <-chan os.Signal

	addr    string
	json    bool
	timeout time.Duration

	running bool // a command's own code was reached: what fails now is no usage error
	wrote   bool // the one line of --json is out
}

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if !a.running {
		before, _, _ := strings.Cut(strings.Join(args, "\x00")+"\x00", "\x00--\x00")
		a.json = a.json || slices.Contains(strings.Split(before, "\x00"), "--json")
		err = sundog.Errorf(sundog.Invalid, "%s; see: %s --help", textOf(err), cmd.CommandPath())
	}
	a.report(cmd, err)
	return exitCode(err)
}

// root builds the command tree. Every family of commands has a file of its own.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sundog",
		Short: "A replicated distributed hash table",
		Long: `Sundog keeps keys and values on several nodes and loses nothing it acknowledged.

Environment: SUNDOG_ADDR is the default of --addr, SUNDOG_LOG=off|error|warn|info|debug
how much is logged to stderr. Exit codes: 0 done, 1 other error, 2 usage, 3 not
found, 4 unavailable or timeout, 5 outcome unknown, 6 exists or conflict, 7 no
space or too large, 8 denied.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          a.group,
		Args:          cobra.ArbitraryArgs,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.addr, "addr", a.env("SUNDOG_ADDR", defaultAddr), "`HOST:PORT` of nodes, comma-separated; any living one is enough")
	flags.BoolVar(&a.json, "json", false, "print exactly one line of JSON on stdout, for an error too")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this long (default 5s; 30s for pool changes and check)")
	root.AddGroup(
		&cobra.Group{ID: "data", Title: "Data:"},
		&cobra.Group{ID: "admin", Title: "Cluster:"},
		&cobra.Group{ID: "server", Title: "Server:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("server", a.startCommand(), a.demoCommand(), a.doctorCommand(), a.versionCommand())
	add("admin", a.poolCommand(), a.nodesCommand(), a.partitionsCommand(), a.checkCommand())
	add("data", a.putCommand(), a.getCommand(), a.delCommand(), a.incrCommand(), a.scanCommand(), a.loadCommand())
	return root
}

// group is what a command that only has subcommands does.
func (a *app) group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && !cmd.HasParent() && !a.json {
		return cmd.Help()
	}
	if len(args) == 0 {
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		return sundog.Errorf(sundog.Invalid, "name one of the commands %s", strings.Join(names, ", "))
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return sundog.Errorf(sundog.Invalid, "unknown command %q%s", args[0], hint)
}

// args checks a command's arguments against the words of its Use line, of which
// those in [] may be left out.
func args(cmd *cobra.Command, given []string) error {
	words := strings.Fields(cmd.Use)[1:]
	need := 0
	for _, w := range words {
		if !strings.HasPrefix(w, "[") {
			need++
		}
	}
	if len(given) < need {
		return sundog.Errorf(sundog.Invalid, "%s is missing", words[len(given)])
	}
	if len(given) > len(words) {
		return sundog.Errorf(sundog.Invalid, "unexpected argument %q", given[len(words)])
	}
	return nil
}

// env reads one variable of the environment.
func (a *app) env(name, otherwise string) string {
	for _, kv := range a.environ() {
		if v, ok := strings.CutPrefix(kv, name+"="); ok && v != "" {
			return v
		}
	}
	return otherwise
}

// action is the body of a command that talks to a cluster.
type action func(ctx context.Context, c *client.Client, args []string) error

// withClient dials the cluster around f. def is the deadline where the command
// line has none.
func (a *app) withClient(def time.Duration, f action) func(*cobra.Command, []string) error {
	return a.local(func(cmd *cobra.Command, args []string) error {
		if a.timeout < 0 {
			return sundog.Errorf(sundog.Invalid, "--timeout %v: use a positive one", a.timeout)
		}
		if a.timeout > 0 {
			def = a.timeout
		}
		log, err := a.logger("warn")
		if err != nil {
			return err
		}
		ctx, stop := a.interruptible(cmd.Context())
		defer stop()
		c, err := client.Dial(ctx, strings.Split(a.addr, ","), client.Options{Timeout: def, Logger: log})
		if err != nil {
			return err
		}
		defer c.Close()
		return f(ctx, c, args)
	})
}

// local is the frame of every command.
func (a *app) local(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return f(cmd, args)
	}
}

// interruptible ends the context at the first signal.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-stopped }
}
