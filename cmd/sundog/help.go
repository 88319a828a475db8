package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
)

// unknownCommand is the error of a name that cmd has no subcommand of.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return sundog.Errorf(sundog.Invalid, "unknown command %q%s", name, hint)
}

// laterCommands are commands of later releases: known, hidden and refused.
func (a *app) laterCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"bench", "drain", "remove", "snapshot", "token", "transfer"} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return sundog.Errorf(sundog.Invalid, "%s: not in this release; sundog --help lists what is", name)
			},
		})
	}
	return all
}

// addHelp makes help of a command that there is not an error, and says of an
// argument that was taken for a flag how to write it.
func (a *app) addHelp(root *cobra.Command) {
	standard := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if rest := cmd.Flags().Args(); cmd.HasSubCommands() && len(rest) > 0 {
			a.misuse = unknownCommand(cmd, rest[0])
			return
		}
		standard(cmd, args)
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && (cmd.HasSubCommands() || cmd == root) {
				return unknownCommand(cmd, args[len(args)-max(1, len(rest))])
			}
			if cmd.Hidden && cmd.RunE != nil {
				return cmd.RunE(cmd, nil)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.Contains(err.Error(), "unknown") && (cmd.GroupID == "data") {
			return sundog.Errorf(sundog.Invalid, "%s (an argument that begins with - comes after --, as in: %s)", textOf(err), dashed(cmd))
		}
		return err
	})
}

// dashed shows a call of a data command with an argument that begins with -.
func dashed(cmd *cobra.Command) string {
	if cmd.Name() == "incr" {
		return "sundog incr POOL KEY -- -1"
	}
	return cmd.CommandPath() + " POOL -- -KEY"
}
