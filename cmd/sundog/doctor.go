package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
)

// doctorJSON is the line of doctor.
type doctorJSON struct {
	Fabrics []fabricJSON  `json:"fabrics"`
	Checks  []findingJSON `json:"checks"`
}

// fabricJSON is one way to move data and whether this build and machine have it.
type fabricJSON struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason"`
}

// findingJSON is one thing looked at. Advice is "" where nothing should change.
type findingJSON struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	OK     bool   `json:"ok"`
	Advice string `json:"advice,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, and what to change",
		Long: `Say what this machine can do, and what to change. The time of a sync to disk is
measured with a file in --data (made and removed); name the directory, or the
disk, where a server will keep its data.`,
		Args: args,
	}
	cmd.RunE = a.local(func(*cobra.Command, []string) error {
		if err := noTilde("--data", dir); err != nil {
			return err
		}
		sync, err := syncLatency(dir)
		if err != nil {
			if named, ok := errors.AsType[*fs.PathError](err); ok {
				err = named.Err // the name is of a file of ours
			}
			return sundog.Errorf(sundog.Invalid, "--data %s: %w", dir, err)
		}
		d := doctorJSON{Fabrics: fabrics(), Checks: append([]findingJSON{processors(a.env("GOMAXPROCS", "")), sync}, machine()...)}
		a.show(d, func(w io.Writer) { printDoctor(w, d) })
		return nil
	})
	cmd.Flags().StringVar(&dir, "data", ".", "`DIR`ectory whose disk to measure")
	return cmd
}

func printDoctor(w io.Writer, d doctorJSON) {
	table(w, "FABRIC\tAVAILABLE\tREASON", len(d.Fabrics), func(i int) string {
		f := d.Fabrics[i]
		return fmt.Sprintf("%s\t%s\t%s", f.Name, yes(f.Available), f.Reason)
	})
	fmt.Fprintln(w)
	table(w, "CHECK\tOK\tVALUE", len(d.Checks), func(i int) string {
		c := d.Checks[i]
		return fmt.Sprintf("%s\t%s\t%s", c.Name, yes(c.OK), c.Value)
	})
	for _, c := range d.Checks {
		if c.Advice != "" {
			fmt.Fprintf(w, "\n%s: %s\n", c.Name, c.Advice)
		}
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// fabrics is what this release has.
func fabrics() []fabricJSON {
	const later = "not in this release: values are read by rpc over tcp"
	return []fabricJSON{
		{"tcp", true, "rpc over tcp, always there"},
		{"shm", false, later},
		{"ofi", false, later + "; this build has no libfabric"},
	}
}

// syncSamples syncs are made, or fewer when they take longer than syncBudget.
const (
	syncSamples = 100
	syncBudget  = time.Second
	slowSync    = 10 * time.Millisecond
)

func syncFinding(took []time.Duration) findingJSON {
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	f := findingJSON{
		Name: "fsync", OK: median < slowSync,
		Value: fmt.Sprintf("median %v, worst %v of %d", median.Round(time.Microsecond), worst.Round(time.Microsecond), len(took)),
	}
	if !f.OK {
		f.Advice = "every write of a strong pool waits for a sync on a majority of nodes: use a disk that syncs faster (NVMe, or a controller with a protected cache)"
	}
	return f
}
