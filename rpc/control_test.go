package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// serveMap answers MethodMap, and anything else by bytes that are no message.
func serveMap(_ context.Context, r *Request) (Body, error) {
	if r.Method != MethodMap {
		return Body{{0xff, 0xff}}, nil
	}
	var req rpcpb.MapRequest
	if err := Unmarshal(r.Body, &req); err != nil {
		return nil, err
	}
	return Marshal(&rpcpb.MapReply{Epoch: req.HaveEpoch + 1})
}

func testInvoke(t *testing.T, c *Conn) {
	var reply rpcpb.MapReply
	epoch, err := Invoke(within(t, patient), c, MethodMap, 1, &rpcpb.MapRequest{HaveEpoch: 3}, &reply)
	require.NoError(t, err)
	require.Equal(t, sundog.Epoch(4), epoch)
	require.EqualValues(t, 4, reply.Epoch)
	_, err = Invoke(within(t, patient), c, MethodNodes, 1, &rpcpb.NodesRequest{}, &reply)
	require.ErrorIs(t, err, sundog.Corrupt)
}
