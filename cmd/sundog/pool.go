package main

import (
	"context"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

func (a *app) poolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Create, list, describe, change and delete pools",
		Args:  cobra.ArbitraryArgs,
		RunE:  a.group,
	}
	cmd.AddCommand(a.poolCreateCommand(), a.poolListCommand(), a.poolDescribeCommand(), a.poolSetCommand(), a.poolDeleteCommand())
	return cmd
}

// poolFlags are the parts of a pool's spec as flags.
type poolFlags struct {
	consistency, quota, acks, durability, maxValue string
	replicas                                       int
}

func (f *poolFlags) spec() (spec sundog.PoolSpec, err error) {
	if f.consistency == "" {
		return spec, sundog.Errorf(sundog.Invalid, "--consistency is missing: use strong")
	}
	if spec.Consistency, err = sundog.ParseConsistency(f.consistency); err != nil {
		return spec, err
	}
	if f.acks != "" {
		if spec.Acks, err = sundog.ParseAcks(f.acks); err != nil {
			return spec, err
		}
		if spec.Consistency == sundog.Strong {
			return spec, sundog.Errorf(sundog.Invalid, "--acks %s: a strong pool always waits for a majority, synced to disk; leave --acks out, it is for eventual pools", f.acks)
		}
	}
	if f.durability != "" {
		if spec.Durability, err = sundog.ParseDurability(f.durability); err != nil {
			return spec, err
		}
	}
	if spec.Quota, err = sizeFlag("quota", f.quota); err != nil {
		return spec, err
	}
	if spec.MaxValue, err = sizeFlag("max-value", f.maxValue); err != nil {
		return spec, err
	}
	spec.Replicas = f.replicas
	return spec, spec.WithDefaults().Validate()
}

func sizeFlag(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := parseSize(text)
	if err != nil {
		return 0, sundog.Errorf(sundog.Invalid, "--%s %q: %s", name, text, textOf(err))
	}
	return n, nil
}

func (a *app) poolCreateCommand() *cobra.Command {
	var f poolFlags
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a pool",
		Example: "  sundog pool create pkgs --consistency strong",
		Args:    args,
		RunE: a.withClient(adminTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			spec, err := f.spec()
			if err != nil {
				return err
			}
			info, err := c.CreatePool(ctx, args[0], spec)
			if err != nil {
				return conflicting(ctx, c, args[0], spec, err)
			}
			a.warnShare(ctx, c, info.Spec)
			a.show(poolOf(info), func(w io.Writer) { fmt.Fprintf(w, "pool %s created\n", info.Name) })
			return nil
		}),
	}
	cmd.PreRunE = a.local(func(*cobra.Command, []string) error { // before anything is dialled
		if cmd.Flags().Changed("replicas") && f.replicas < 1 {
			return sundog.Errorf(sundog.Invalid, "--replicas %d: use 1 to %d", f.replicas, sundog.MaxReplicas)
		}
		_, err := f.spec()
		return err
	})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.consistency, "consistency", "", "strong (eventual: not in this release)")
	flags.IntVar(&f.replicas, "replicas", 0, "copies of every key (default: as the cluster's strong pools have, 3 for the first)")
	flags.StringVar(&f.quota, "quota", "", "`SIZE` of keys and values, one copy, divided evenly by the partitions (default: none)")
	flags.StringVar(&f.acks, "acks", "", "one, quorum or all; of eventual pools")
	flags.StringVar(&f.durability, "durability", "", "disk; a strong pool is always synced")
	flags.StringVar(&f.maxValue, "max-value", "", "largest value, a `SIZE` (default and most: 1MiB)")
	return cmd
}

// poolJSON is a pool in list and describe.
type poolJSON struct {
	Name        string `json:"name"`
	ID          uint64 `json:"id"`
	Consistency string `json:"consistency"`
	Replicas    int    `json:"replicas"`
	Quota       int64  `json:"quota"` // bytes, 0 none
	MaxValue    int64  `json:"max_value"`
	Durability  string `json:"durability"`
}

func poolOf(p client.PoolInfo) poolJSON {
	return poolJSON{
		Name: p.Name, ID: uint64(p.ID), Consistency: p.Spec.Consistency.String(), Replicas: p.Spec.Replicas,
		Quota: p.Spec.Quota, MaxValue: p.Spec.MaxValue, Durability: p.Spec.Durability.String(),
	}
}

// poolStatusJSON is pool describe's.
type poolStatusJSON struct {
	poolJSON
	Used       int64 `json:"used"` // bytes of keys and values, one copy
	Keys       int64 `json:"keys"`
	Ready      int   `json:"partitions_ready"` // used and keys are of these alone
	Partitions int   `json:"partitions"`
	Complete   bool  `json:"complete"` // all partitions answered
}

func (a *app) poolListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all pools",
		Args:  args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, _ []string) error {
			pools, err := c.Pools(ctx)
			if err != nil {
				return err
			}
			list := make([]poolJSON, len(pools))
			for i, p := range pools {
				list[i] = poolOf(p)
			}
			a.show(list, func(w io.Writer) {
				table(w, "NAME\tCONSISTENCY\tREPLICAS\tQUOTA\tMAX VALUE", len(list), func(i int) string {
					p := list[i]
					return fmt.Sprintf("%s\t%s\t%d\t%s\t%s", p.Name, p.Consistency, p.Replicas, quota(p.Quota), bytesOf(p.MaxValue))
				})
			})
			return nil
		}),
	}
}

func (a *app) poolDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a pool and what it holds",
		Args:  args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			p, err := c.DescribePool(ctx, args[0])
			if err != nil {
				return err
			}
			return a.described(p)
		}),
	}
}

// described prints a pool. What it holds is not told where no partition says.
func (a *app) described(p client.PoolStatus) error {
	v := poolStatusJSON{poolOf(p.PoolInfo), p.Used, p.Keys, p.Ready, p.Partitions, p.Ready == p.Partitions}
	if v.Ready == 0 && v.Partitions > 0 {
		return sundog.Errorf(sundog.Unavailable, "pool %q is there, but none of its %d partitions has a leader that answers: start a majority of the nodes to see what it holds", v.Name, v.Partitions)
	}
	part := ""
	if !v.Complete {
		part = fmt.Sprintf(" in the %d of %d partitions that answered", v.Ready, v.Partitions)
	}
	a.show(v, func(w io.Writer) {
		rows := [][2]string{
			{"consistency", v.Consistency}, {"replicas", fmt.Sprint(v.Replicas)},
			{"durability", v.Durability}, {"quota", quota(v.Quota)}, {"max value", bytesOf(v.MaxValue)},
			{"used", bytesOf(v.Used) + part}, {"keys", humanize.Comma(v.Keys) + part},
			{"partitions", fmt.Sprintf("%d of %d ready", v.Ready, v.Partitions)},
		}
		table(w, fmt.Sprintf("name\t%s", v.Name), len(rows), func(i int) string { return rows[i][0] + "\t" + rows[i][1] })
	})
	return nil
}

func (a *app) poolSetCommand() *cobra.Command {
	var quotaText, maxText string
	cmd := &cobra.Command{
		Use:     "set NAME",
		Short:   "Change a pool's limits",
		Example: "  sundog pool set pkgs --quota 2GiB      (--quota 0 takes the quota away)",
		Args:    args,
	}
	cmd.RunE = a.withClient(adminTimeout, func(ctx context.Context, c *client.Client, args []string) error {
		change, err := poolChange(cmd, quotaText, maxText)
		if err != nil {
			return err
		}
		if err := c.SetPool(ctx, args[0], change); err != nil {
			return err
		}
		p, err := c.DescribePool(ctx, args[0])
		if err != nil {
			return err
		}
		a.warnShare(ctx, c, p.Spec)
		a.show(poolOf(p.PoolInfo), func(w io.Writer) {
			fmt.Fprintf(w, "pool %s: quota %s, max value %s\n", p.Name, quota(p.Spec.Quota), bytesOf(p.Spec.MaxValue))
		})
		return nil
	})
	cmd.PreRunE = a.local(func(*cobra.Command, []string) error {
		_, err := poolChange(cmd, quotaText, maxText)
		return err
	})
	cmd.Flags().StringVar(&quotaText, "quota", "", "`SIZE` of keys and values, one copy, divided evenly by the partitions; 0 is none")
	cmd.Flags().StringVar(&maxText, "max-value", "", "largest value, a `SIZE`")
	cmd.Flags().String("consistency", "", "switching is not in this release")
	return cmd
}

// poolChange makes a change of the flags that were given.
func poolChange(cmd *cobra.Command, quotaText, maxText string) (client.PoolChange, error) {
	var change client.PoolChange
	flags := cmd.Flags()
	if flags.Changed("consistency") {
		return change, sundog.Errorf(sundog.Invalid, "--consistency: switching a pool is not in this release")
	}
	for _, f := range []struct {
		name, text string
		to         **int64
	}{{"quota", quotaText, &change.Quota}, {"max-value", maxText, &change.MaxValue}} {
		if !flags.Changed(f.name) {
			continue
		}
		n, err := sizeFlag(f.name, f.text)
		if err != nil {
			return change, err
		}
		*f.to = &n
	}
	if change == (client.PoolChange{}) {
		return change, sundog.Errorf(sundog.Invalid, "nothing to change: give --quota or --max-value")
	}
	return change, nil
}

func (a *app) poolDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a pool and all it holds",
		Args:  args,
		RunE: a.withClient(adminTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.DeletePool(ctx, args[0]); err != nil {
				return err
			}
			a.show(map[string]any{"name": args[0], "deleted": true}, func(w io.Writer) {
				fmt.Fprintf(w, "pool %s deleted\n", args[0])
			})
			return nil
		}),
	}
}

func quota(n int64) string {
	if n == 0 {
		return "none"
	}
	return bytesOf(n)
}

func bytesOf(n int64) string { return humanize.IBytes(uint64(max(0, n))) }
