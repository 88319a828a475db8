package rpc

import (
	"context"

	"github.com/sundog-kv/sundog"
	"google.golang.org/protobuf/proto"
)

// Marshal lays out a control message; the error is of kind [sundog.Internal].
func Marshal(m proto.Message) (Body, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, sundog.Errorf(sundog.Internal, "encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return Body{b}, nil
}

// Unmarshal reads a control message into m; the error is of kind
// [sundog.Corrupt].
func Unmarshal(b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return sundog.Errorf(sundog.Corrupt, "decode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// Invoke calls a control method: it sends req, reads the answer into reply and
// returns the epoch of the answering node. Errors are those of [Conn.Call], and
// Corrupt for an answer that cannot be read.
func Invoke(ctx context.Context, c *Conn, m Method, epoch sundog.Epoch, req, reply proto.Message) (sundog.Epoch, error) {
	body, err := Marshal(req)
	if err != nil {
		return 0, err
	}
	r, err := c.Call(ctx, m, epoch, body)
	if err != nil {
		return r.Epoch, err
	}
	return r.Epoch, Unmarshal(r.Body, reply)
}
