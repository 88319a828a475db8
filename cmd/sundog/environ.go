package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// variables are the names of the environment that this program knows.
func variables() []string {
	names := []string{"SUNDOG_ADDR", "SUNDOG_CONFIG", "SUNDOG_LOG", "SUNDOG_MUTANT"}
	settings := pflag.NewFlagSet("", pflag.ContinueOnError)
	startFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) {
		names = append(names, "SUNDOG_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	})
	return names
}

// strangers are the SUNDOG_ variables that nobody reads, each with the one that
// may have been meant.
func strangers(environ []string) [][2]string {
	known := variables()
	var out [][2]string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "SUNDOG_") && !slices.Contains(known, name) {
			out = append(out, [2]string{name, near(name, known)})
		}
	}
	return out
}
