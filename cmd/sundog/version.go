package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of this source.
const release = "0.1.0"

// versionJSON is the line of version --json.
type versionJSON struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  args,
		RunE:  a.local(a.version),
	}
}

func (a *app) version(*cobra.Command, []string) error {
	v := versionJSON{release, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	a.show(v, func(w io.Writer) {
		fmt.Fprintf(w, "sundog %s (%s, %s, %s/%s)\n", v.Version, v.Commit, v.Go, v.OS, v.Arch)
	})
	return nil
}

// revision is what the linker was told, else what the Go tool recorded.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok && commit == "unknown" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return commit
}
