package strong

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/rpc"
)

// Raft may not come to write a snapshot before Apply gets on: a cut that nobody
// reads yet must not hold Apply up.
func TestSnapshotNotReadYetDoesNotHoldApplyUp(t *testing.T) {
	r := newReplica(t, testArenas()).withPools(5, 1)
	big := strings.Repeat("v", 60_000)
	fill := func(value string) {
		for i := range 20 {
			var ops []rpc.Op
			for j := range 500 {
				ops = append(ops, put(1, fmt.Sprint(i, "/", j), value))
			}
			ops = append(ops, put(1, fmt.Sprint("big", i), big), put(1, fmt.Sprint("big", i), big))
			r.do(t, 1, ops...)
		}
	}
	fill("old")
	before := r.contents()
	s, err := r.Snapshot()
	require.NoError(t, err)
	defer s.Release()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fill("new")
		for range 30 {
			fillBig(r, big)
		}
	}()
	select {
	case <-done:
	case <-time.After(eventually):
		t.Error("Apply waits for a snapshot that waits for Apply")
		go s.WriteTo(io.Discard) // let it go
		<-done
		return
	}
	c := newReplica(t, testArenas())
	require.NoError(t, c.Restore(bytes.NewReader(bytesOf(t, s))))
	require.Equal(t, before, c.contents())
}

// fillBig replaces some MB.
func fillBig(r *replica, value string) {
	for i := range 20 {
		r.apply(1, appendOps(nil, []rpc.Op{put(1, fmt.Sprint("big", i), value)}))
	}
}
