package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// nodeJSON is one element of nodes.
type nodeJSON struct {
	ID         sundog.NodeID `json:"id"`
	Listen     string        `json:"listen"`
	HTTP       string        `json:"http"`
	Gossip     string        `json:"gossip"`
	State      string        `json:"state"`
	Zone       string        `json:"zone"`
	Replicas   int           `json:"replicas"`
	Leaders    int           `json:"leaders"`
	SafeToStop bool          `json:"safe_to_stop"`
	Reason     string        `json:"reason,omitempty"` // why it is not
}

func (a *app) nodesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nodes",
		Short: "List all nodes",
		Args:  args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, _ []string) error {
			nodes, err := c.Nodes(ctx)
			if err != nil {
				return err
			}
			list := make([]nodeJSON, len(nodes))
			for i, n := range nodes {
				list[i] = nodeJSON{
					ID: n.ID, Listen: n.Listen, HTTP: n.HTTP, Gossip: n.Gossip, State: n.State, Zone: n.Zone,
					Replicas: n.Replicas, Leaders: n.Leaders, SafeToStop: n.SafeToStop, Reason: n.Reason,
				}
			}
			a.show(list, func(w io.Writer) {
				table(w, "NODE\tLISTEN\tHTTP\tSTATE\tZONE\tREPLICAS\tLEADERS\tSAFE TO STOP", len(list), func(i int) string {
					n := list[i]
					safe := "yes"
					if !n.SafeToStop {
						safe = strings.TrimSuffix("no: "+n.Reason, ": ")
					}
					return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", n.ID, n.Listen, n.HTTP, n.State, dash(n.Zone), n.Replicas, n.Leaders, safe)
				})
			})
			return nil
		}),
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// partitionJSON is one element of partitions. Leader is "" where none is known.
type partitionJSON struct {
	Partition sundog.Partition `json:"partition"`
	Leader    string           `json:"leader"`
	Replicas  []sundog.NodeID  `json:"replicas"`
	Term      uint64           `json:"term"`
	Applied   uint64           `json:"applied"`
}

func (a *app) partitionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "partitions",
		Short: "List all partitions with their leaders and replicas",
		Args:  args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, _ []string) error {
			parts, err := c.Partitions(ctx)
			if err != nil {
				return err
			}
			list := make([]partitionJSON, len(parts))
			for i, p := range parts {
				list[i] = partitionJSON{Partition: p.Partition, Replicas: p.Replicas, Term: p.Term, Applied: p.Applied}
				if p.Leader != 0 {
					list[i].Leader = p.Leader.String()
				}
				if p.Replicas == nil {
					list[i].Replicas = []sundog.NodeID{}
				}
			}
			a.show(list, func(w io.Writer) {
				table(w, "PARTITION\tLEADER\tREPLICAS\tTERM\tAPPLIED", len(list), func(i int) string {
					p := list[i]
					ids := make([]string, len(p.Replicas))
					for j, id := range p.Replicas {
						ids[j] = id.String()
					}
					return fmt.Sprintf("%d\t%s\t%s\t%d\t%d", p.Partition, dash(p.Leader), dash(strings.Join(ids, " ")), p.Term, p.Applied)
				})
			})
			return nil
		}),
	}
}

// checkJSON is check's; details are of the partitions that are not equal.
type checkJSON struct {
	Partitions int           `json:"partitions"`
	Equal      bool          `json:"equal"`
	Keys       int64         `json:"keys"`
	Details    []checkDetail `json:"details,omitempty"`
}

type checkDetail struct {
	Partition sundog.Partition `json:"partition"`
	Equal     bool             `json:"equal"`
	Keys      int64            `json:"keys"`
	Text      string           `json:"text"`
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check POOL",
		Short: "Compare all replicas of a pool by their hashes",
		Long:  "Compare all replicas of a pool by their hashes, each at the same point of its log. Exit code 1 when they differ.",
		Args:  args,
		RunE: a.withClient(adminTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.Check(ctx, args[0])
			if err != nil {
				return err
			}
			v := checkJSON{Partitions: r.Partitions, Equal: r.Equal, Keys: r.Keys}
			for _, d := range r.Details {
				v.Details = append(v.Details, checkDetail(d))
			}
			a.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "%d partitions, %s keys, equal: %t\n", r.Partitions, humanize.Comma(r.Keys), r.Equal)
				for _, d := range r.Details {
					fmt.Fprintln(w, d)
				}
			})
			if !r.Equal {
				return sundog.Errorf(sundog.Corrupt, "replicas of pool %q differ, or did not answer; sundog nodes shows who lives", args[0])
			}
			return nil
		}),
	}
}
