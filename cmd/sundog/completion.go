package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog/client"
)

// completionTime bounds how long a shell waits for the names of pools.
const completionTime = time.Second

// addCompletion says what a shell may complete: values of flags that have few,
// names of pools, and files only where a file is wanted.
func (a *app) addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, a.group
		}
		a.completeArgs(c)
		for _, sub := range c.Commands() {
			a.completeArgs(sub)
		}
	}
}

func (a *app) completeArgs(c *cobra.Command) {
	for flag, values := range map[string][]string{
		"consistency": {"strong"}, "durability": {"disk"}, "fabric": {"auto", "tcp"}, "acks": {"one", "quorum", "all"},
	} {
		if c.Flags().Lookup(flag) != nil {
			// An error means that the flag is not there.
			_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if c.ValidArgsFunction != nil {
		return
	}
	words := strings.Fields(c.Use)[1:]
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) >= len(words):
		case words[len(args)] == "FILE":
			return nil, cobra.ShellCompDirectiveDefault
		case words[len(args)] == "POOL", words[len(args)] == "NAME" && c.Name() != "create":
			return a.poolNames(cmd), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// poolNames asks the cluster, in short; none where it does not answer.
func (a *app) poolNames(cmd *cobra.Command) []string {
	c, err := client.Dial(cmd.Context(), strings.Split(a.addr, ","), client.Options{Timeout: completionTime})
	if err != nil {
		return nil
	}
	defer c.Close()
	pools, err := c.Pools(cmd.Context())
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return names
}
