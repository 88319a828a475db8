package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
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
	stdin   io.Reader
	stdout  *output
	stderr  io.Writer
	environ func() []string
	signals <-chan os.Signal
	notify  func(...os.Signal) // makes more signals come by signals; may be nil

	addr    string
	json    bool
	timeout time.Duration

	running     bool        // a command's own code was reached: what fails now is no usage error
	wrote       atomic.Bool // the one line of --json is out
	reached     atomic.Bool // some node answered
	interrupted atomic.Bool // a signal came
	misuse      error       // help was asked for what there is not
}

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.misuse
	}
	if failed := a.stdout.failed(); failed != nil && (err == nil || !a.running) {
		err, a.running = failed, true
	}
	if err != nil && !a.running {
		before, _, _ := strings.Cut(strings.Join(args, "\x00")+"\x00", "\x00--\x00")
		a.json = a.json || slices.Contains(strings.Split(before, "\x00"), "--json")
		err = sundog.Errorf(sundog.Invalid, "%s; see: %s --help", textOf(err), cmd.CommandPath())
	}
	if err != nil {
		a.report(cmd, err)
	}
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
space or too large, 8 denied, 130 interrupted by a signal.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	showVersion := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion && len(args) == 0 {
			return a.local(a.version)(cmd, args)
		}
		return a.group(cmd, args)
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
	root.AddCommand(a.laterCommands()...)
	a.addHelp(root)
	a.addCompletion(root)
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
	return unknownCommand(cmd, args[0])
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
// line has none. A signal ends it, whatever it waits for.
func (a *app) withClient(def time.Duration, f action) func(*cobra.Command, []string) error {
	return a.local(func(cmd *cobra.Command, args []string) error {
		given, err := a.given(cmd)
		if err != nil {
			return err
		}
		if given > 0 {
			def = given
		}
		log, err := a.logger("warn")
		if err != nil {
			return err
		}
		return a.untilInterrupted(cmd.Context(), func(ctx context.Context) error {
			c, err := client.Dial(ctx, strings.Split(a.addr, ","), client.Options{Timeout: def, Logger: log})
			if err != nil {
				return err
			}
			defer c.Close()
			a.reached.Store(true)
			return f(ctx, c, args)
		})
	})
}

// local is the frame of every command.
func (a *app) local(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return f(cmd, args)
	}
}
