package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// A replica that differs is another matter than one that did not answer.
func TestCompareSums(t *testing.T) {
	owners := ring.Replicas{{Node: 1, Incarnation: 1}, {Node: 2, Incarnation: 1}, {Node: 3, Incarnation: 1}}
	a := &rpcpb.ReplicaCheckReply{Done: true, Index: 7, Hash: []byte{0xaa}, Keys: 3}
	b := &rpcpb.ReplicaCheckReply{Done: true, Index: 7, Hash: []byte{0xbb}, Keys: 3}
	later := &rpcpb.ReplicaCheckReply{Done: true, Index: 8, Hash: []byte{0xaa}, Keys: 3}
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		sums           []*rpcpb.ReplicaCheckReply
		errs           []error
		equal, differs bool
		silent         []uint64
	}{
		"equal":             {[]*rpcpb.ReplicaCheckReply{a, a, a}, make([]error, 3), true, false, nil},
		"other hash":        {[]*rpcpb.ReplicaCheckReply{a, b, a}, make([]error, 3), false, true, nil},
		"other index":       {[]*rpcpb.ReplicaCheckReply{a, a, later}, make([]error, 3), false, true, nil},
		"one silent":        {[]*rpcpb.ReplicaCheckReply{a, nil, a}, []error{nil, gone, nil}, false, false, []uint64{2}},
		"silent and other":  {[]*rpcpb.ReplicaCheckReply{nil, a, b}, []error{gone, nil, nil}, false, true, []uint64{1}},
		"all silent":        {make([]*rpcpb.ReplicaCheckReply, 3), []error{gone, gone, gone}, false, false, []uint64{1, 2, 3}},
		"silent, one alone": {[]*rpcpb.ReplicaCheckReply{nil, nil, a}, []error{gone, gone, nil}, false, false, []uint64{1, 2}},
	} {
		d := &rpcpb.CheckDetail{}
		compareSums(d, owners, c.sums, c.errs)
		require.Equal(t, c.equal, d.GetEqual(), name)
		require.Equal(t, c.differs, d.GetDiffers(), name)
		require.Equal(t, c.silent, d.GetSilent(), name)
		require.Equal(t, c.equal, d.GetText() == "", name)
	}
}
