package node

import (
	"context"
	"time"

	"github.com/sundog-kv/sundog"
)

// admittedPoll is how often Admitted looks; it costs next to nothing.
const admittedPoll = 200 * time.Millisecond

// Admitted returns nil once the cluster has registered this start of the node.
// The error is the cluster's refusal for good (Conflict, Invalid, Denied: a cloned
// or foreign data directory, a join that cannot be served), which only an operator
// can mend, Closed after Close, or of the kind of ctx's end.
func (n *Node) Admitted(ctx context.Context) error {
	for {
		if n.registrar.registered(n.atlas.Map()) {
			return nil
		}
		if err := n.registrar.refused.Load(); err != nil {
			return err
		}
		if n.life.Err() != nil {
			return sundog.Errorf(sundog.Closed, "the node is closed")
		}
		if !wait(ctx, admittedPoll) {
			return sundog.Errorf(sundog.KindOf(ctx.Err()), "not registered in the cluster yet: %w", ctx.Err())
		}
	}
}
