package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// checkJSON is check's; details are of the partitions that are not equal.
type checkJSON struct {
	Partitions int           `json:"partitions"`
	Equal      bool          `json:"equal"`
	Keys       int64         `json:"keys"`
	Differ     int           `json:"differ"`     // partitions whose replicas differ
	Unanswered int           `json:"unanswered"` // partitions of which a replica did not answer
	Details    []checkDetail `json:"details,omitempty"`
	Error      *errorJSON    `json:"error,omitempty"`
}

type checkDetail struct {
	Partition sundog.Partition `json:"partition"`
	Equal     bool             `json:"equal"`
	Keys      int64            `json:"keys"`
	Differs   bool             `json:"differs"`
	Silent    []sundog.NodeID  `json:"silent,omitempty"` // nodes that did not answer
	Text      string           `json:"text"`
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check POOL",
		Short: "Compare all replicas of a pool by their hashes",
		Long: `Compare all replicas of a pool by their hashes, each at the same point of its log.
Exit code 1 when replicas differ, 4 when none do and some did not answer.`,
		Args: args,
		RunE: a.withClient(adminTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.Check(ctx, args[0])
			if err != nil {
				return err
			}
			return a.checked(args[0], r)
		}),
	}
}

// checked prints a report and makes the command's error of it.
func (a *app) checked(pool string, r client.CheckReport) error {
	v := checkJSON{Partitions: r.Partitions, Equal: r.Equal, Keys: r.Keys}
	for _, d := range r.Details {
		v.Details = append(v.Details, checkDetail{d.Partition, d.Equal, d.Keys, d.Differs, d.Silent, d.Text})
		if d.Differs {
			v.Differ++
		}
		if d.Leaderless || len(d.Silent) > 0 {
			v.Unanswered++
		}
	}
	failed := checkError(pool, v)
	if failed != nil {
		e := errorOf(failed)
		v.Error = &e
	}
	a.show(v, func(w io.Writer) {
		fmt.Fprintf(w, "%d partitions, %s keys, equal: %t\n", r.Partitions, humanize.Comma(r.Keys), r.Equal)
		for _, line := range checkLines(r.Details) {
			fmt.Fprintln(w, line)
		}
	})
	return failed
}

func checkError(pool string, v checkJSON) error {
	switch {
	case v.Equal:
		return nil
	case v.Differ > 0:
		return sundog.Errorf(sundog.Corrupt, "replicas of pool %q differ in %d of %d partitions", pool, v.Differ, v.Partitions)
	}
	return sundog.Errorf(sundog.Unavailable, "pool %q: no replicas that answered differ, but in %d of %d partitions not all did", pool, v.Unanswered, v.Partitions)
}

// checkLines tells what differs by partition, and who did not answer by node.
func checkLines(details []client.CheckDetail) []string {
	var lines []string
	var headless []sundog.Partition
	silent := map[sundog.NodeID][]sundog.Partition{}
	for _, d := range details {
		if d.Differs {
			lines = append(lines, d.String())
		}
		if d.Leaderless {
			headless = append(headless, d.Partition)
		}
		for _, id := range d.Silent {
			silent[id] = append(silent[id], d.Partition)
		}
	}
	if len(headless) > 0 {
		lines = append(lines, fmt.Sprintf("%s without a leader that answers: %s", count(len(headless), "partition"), ranges(headless)))
	}
	var ids []sundog.NodeID
	for id := range silent {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		lines = append(lines, fmt.Sprintf("node %s did not answer for %s: %s", id, count(len(silent[id]), "partition"), ranges(silent[id])))
	}
	return lines
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ranges writes ascending numbers briefly: 0-3, 7.
func ranges(parts []sundog.Partition) string {
	var out []string
	for i := 0; i < len(parts); {
		j := i
		for j+1 < len(parts) && parts[j+1] == parts[j]+1 {
			j++
		}
		text := fmt.Sprint(parts[i])
		if j > i {
			text += fmt.Sprintf("-%d", parts[j])
		}
		out = append(out, text)
		i = j + 1
	}
	return strings.Join(out, ", ")
}
