package main

import (
	"context"
	"fmt"
	"io"
	"strings"

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
				list[i] = nodeOf(n)
			}
			a.show(list, func(w io.Writer) {
				table(w, "NODE\tLISTEN\tHTTP\tSTATE\tZONE\tREPLICAS\tLEADERS\tSAFE TO STOP", len(list), func(i int) string {
					n := list[i]
					safe := "yes"
					switch {
					case n.State != aliveNode:
						safe = "-"
					case !n.SafeToStop:
						safe = strings.TrimSuffix("no: "+n.Reason, ": ")
					}
					return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", n.ID, n.Listen, n.HTTP, n.State, dash(n.Zone), n.Replicas, n.Leaders, safe)
				})
			})
			return nil
		}),
	}
}

// aliveNode is the state of a node that gossips and answers.
const aliveNode = "alive"

// nodeOf is a node in JSON. Whether one that is dead, or about to be found so, may
// be stopped is no question.
func nodeOf(n client.NodeStatus) nodeJSON {
	v := nodeJSON{
		ID: n.ID, Listen: n.Listen, HTTP: n.HTTP, Gossip: n.Gossip, State: n.State, Zone: n.Zone,
		Replicas: n.Replicas, Leaders: n.Leaders, SafeToStop: n.SafeToStop, Reason: n.Reason,
	}
	if n.State != aliveNode {
		v.SafeToStop, v.Reason = false, "it is "+n.State
	}
	return v
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
