package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// warnShare says where a quota leaves a partition less than one value may have.
func (a *app) warnShare(ctx context.Context, c *client.Client, spec sundog.PoolSpec) {
	if a.json || spec.Quota == 0 {
		return
	}
	parts, err := c.PartitionCount(ctx)
	if err != nil || parts == 0 || spec.Quota/int64(parts) >= spec.MaxValue {
		return
	}
	fmt.Fprintf(a.stderr, "note: a quota is divided by the %d partitions: each may hold %s, less than one value of %s\n",
		parts, bytesOf(spec.Quota/int64(parts)), bytesOf(spec.MaxValue))
}

// conflicting adds to the refusal of a pool that exists in what it is another
// than the one asked for.
func conflicting(ctx context.Context, c *client.Client, name string, asked sundog.PoolSpec, err error) error {
	if sundog.KindOf(err) != sundog.Exists {
		return err
	}
	pools, listed := c.Pools(ctx)
	if listed != nil {
		return err
	}
	for _, p := range pools {
		if p.Name == name {
			return sundog.Errorf(sundog.Exists, "pool %q exists already, %s", name, difference(p.Spec, asked))
		}
	}
	return err
}

// difference says in what there is another than asked; replicas that were not
// asked for are as the cluster has them.
func difference(there, asked sundog.PoolSpec) string {
	if asked.Replicas == 0 {
		asked.Replicas = there.Replicas
	}
	asked = asked.WithDefaults()
	var out []string
	for _, f := range []struct{ name, there, asked string }{
		{"consistency", there.Consistency.String(), asked.Consistency.String()},
		{"replicas", fmt.Sprint(there.Replicas), fmt.Sprint(asked.Replicas)},
		{"quota", quota(there.Quota), quota(asked.Quota)},
		{"durability", there.Durability.String(), asked.Durability.String()},
		{"max value", bytesOf(there.MaxValue), bytesOf(asked.MaxValue)},
	} {
		if f.there != f.asked {
			out = append(out, fmt.Sprintf("with %s %s where %s was asked for", f.name, f.there, f.asked))
		}
	}
	if len(out) == 0 {
		return "with this same spec"
	}
	return strings.Join(out, ", ")
}
