package node

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// control serves one control method: it reads the request and returns the answer.
type control func(ctx context.Context, req *rpc.Request) (rpc.Body, error)

// typed makes a control of a function over its messages.
func typed[Q any, PQ interface {
	*Q
	proto.Message
}, R proto.Message](serve func(ctx context.Context, req *rpc.Request, q PQ) (R, error)) control {
	return func(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
		q := PQ(new(Q))
		if err := rpc.Unmarshal(req.Body, q); err != nil {
			return nil, err
		}
		ctx, cancel := early(ctx)
		defer cancel()
		reply, err := serve(ctx, req, q)
		if err != nil {
			return nil, err
		}
		return rpc.Marshal(reply)
	}
}

// early ends a little before the caller stops waiting, so that an answer that
// says how far things have come still reaches it.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(time.Until(deadline)/10, 250*time.Millisecond)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// handler is the node's [rpc.Handler].
type handler struct {
	data     *dataService
	puller   *puller
	guard    *guard
	controls map[rpc.Method]control // read-only once served
	metrics  *metrics
}

// ServeRPC answers one request.
func (h *handler) ServeRPC(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	began := time.Now()
	body, err := h.serve(ctx, req)
	h.metrics.served(req.Method, err, time.Since(began))
	return body, err
}

func (h *handler) serve(ctx context.Context, req *rpc.Request) (rpc.Body, error) {
	if !h.guard.open(req.Method) {
		if err := h.guard.vouch(req.Peer); err != nil {
			return nil, err
		}
	}
	if req.Epoch > h.data.atlas.Epoch() {
		if err := h.catchUp(ctx, req); err != nil {
			return nil, err
		}
	}
	switch req.Method {
	case rpc.MethodGet:
		return h.data.get(ctx, req)
	case rpc.MethodMultiGet:
		return h.data.multiGet(ctx, req)
	case rpc.MethodMutate:
		return h.data.mutate(ctx, req)
	case rpc.MethodScan:
		return h.data.scan(ctx, req)
	}
	if serve, ok := h.controls[req.Method]; ok {
		return serve(ctx, req)
	}
	return nil, sundog.Errorf(sundog.Invalid, "this node knows no %s: it may be of an older release", req.Method)
}

// catchUp gets the map that a request has seen before it is answered. Between
// nodes the newer epoch is only noted: what they ask of each other needs no map,
// and is partly how maps travel.
func (h *handler) catchUp(ctx context.Context, req *rpc.Request) error {
	if rpc.NodeOnly(req.Method) || req.Peer.IsNode {
		h.puller.hear(req.Epoch)
		return nil
	}
	return h.puller.need(ctx, req.Epoch)
}
