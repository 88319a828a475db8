package node

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

// guarded is a guard of node 1 (start 4) whose map has node 2, start 7.
func guarded(t *testing.T, there func(proved bool) (rpc.Peer, error)) *guard {
	a := newAtlas(func(string) error { return nil }, newLog())
	_, err := a.Offer(&ring.Map{Cluster: "c", Epoch: 5, Nodes: []ring.Node{{ID: 1, Boot: 4, Listen: "one"}, {ID: 2, Boot: 7, Listen: "two"}}})
	require.NoError(t, err)
	g := newGuard(t.Context(), 1, 4, datadir.NewPeerFence(), a, func() string { return "c" }, rpc.DialConfig{})
	g.identify = func(_ context.Context, addr string, cfg *rpc.DialConfig) (rpc.Peer, error) {
		require.Equal(t, "two", addr)
		return there(cfg != nil)
	}
	return g
}

func peer(id sundog.NodeID, boot, nonce uint64) rpc.Peer {
	return rpc.Peer{Identity: rpc.Identity{Node: id, Boot: boot, Nonce: nonce, Cluster: "c"}, IsNode: true}
}

// TestLaterStart: node 2 comes with start 8 while something, or nothing, answers
// at its registered address.
func TestLaterStart(t *testing.T) {
	gone := sundog.Errorf(sundog.Unavailable, "connection refused")
	claims := peer(2, 7, 70)
	claims.IsNode = false
	for name, test := range map[string]struct {
		there    rpc.Peer
		err      error
		unproved bool // it cannot prove what it claims
		refused  bool
	}{
		"killed":                       {err: gone},
		"its next start, on that port": {there: peer(2, 8, 80)},
		"another node took the port":   {there: peer(3, 1, 9)},
		"it runs":                      {there: peer(2, 7, 70), refused: true},
		"one that only claims to be":   {there: claims, unproved: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := guarded(t, func(proved bool) (rpc.Peer, error) {
				if proved && test.unproved {
					return rpc.Peer{}, sundog.Errorf(sundog.Denied, "no proof")
				}
				return test.there, test.err
			})
			for _, judge := range []func(rpc.Peer) error{g.inbound, g.outbound} {
				err := judge(peer(2, 8, 80))
				if !test.refused {
					require.NoError(t, err)
					require.Equal(t, sundog.Conflict, sundog.KindOf(g.vouch(peer(2, 7, 70))), "the earlier start is over")
					continue
				}
				require.Equal(t, sundog.Conflict, sundog.KindOf(err), "%v", err)
				require.ErrorContains(t, err, "is running")
				require.True(t, g.isCopy(2, 8))
				require.NoError(t, g.vouch(peer(2, 7, 70)), "the original goes on")
			}
		})
	}
}

// TestBehindIsHeardOut: a start that is behind or doubled gets as far as the
// catalog's answer and no further.
func TestBehindIsHeardOut(t *testing.T) {
	g := guarded(t, func(bool) (rpc.Peer, error) { t.Fatal("nobody has to be asked"); return rpc.Peer{}, nil })
	require.NoError(t, g.inbound(peer(2, 7, 70)))
	for _, p := range []rpc.Peer{peer(2, 6, 60), peer(2, 7, 71)} {
		require.NoError(t, g.inbound(p))
		require.Equal(t, sundog.Conflict, sundog.KindOf(g.outbound(p)))
		h := &handler{guard: g}
		for _, m := range []rpc.Method{rpc.MethodMutate, rpc.MethodMapPush, rpc.MethodFound, rpc.MethodReplicaCheck} {
			_, err := h.serve(t.Context(), &rpc.Request{Method: m, Peer: p})
			require.Equal(t, sundog.Conflict, sundog.KindOf(err), m.String())
		}
		n := &Node{guard: g}
		require.Equal(t, sundog.Conflict, sundog.KindOf(n.upgrade(lanePrefix+"bulk", nil, p)))
	}
	require.Equal(t, sundog.Conflict, sundog.KindOf(g.inbound(peer(1, 5, 9))), "a later start of this very node")
	foreign := peer(2, 7, 70)
	foreign.Cluster = "d"
	require.Equal(t, sundog.Conflict, sundog.KindOf(g.inbound(foreign)))
	nameless := peer(2, 7, 0)
	require.Equal(t, sundog.Invalid, sundog.KindOf(g.inbound(nameless)))
}

// TestLooksAreShared: all hellos of a start wait for one look.
func TestLooksAreShared(t *testing.T) {
	var looks atomic.Int64
	release := make(chan struct{})
	g := guarded(t, func(bool) (rpc.Peer, error) {
		looks.Add(1)
		<-release
		return rpc.Peer{}, sundog.Errorf(sundog.Unavailable, "gone")
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := g.inbound(peer(2, 8, 80)); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return looks.Load() > 0 }, testDeadline, admittedPoll/10)
	close(release)
	all.Wait()
	before := looks.Load()
	require.NoError(t, g.inbound(peer(2, 8, 80)))
	require.Equal(t, before, looks.Load(), "who was admitted is not looked for again")
}

func TestWhoseWordCounts(t *testing.T) {
	for _, test := range []struct{ voters, others, want int }{
		{0, 0, 0}, {1, 0, 0}, {1, 1, 1}, {2, 1, 1}, {3, 2, 2}, {3, 3, 2}, {5, 4, 3}, {5, 5, 3},
	} {
		require.Equal(t, test.want, enough(test.voters, test.others), "%+v", test)
	}
	require.True(t, overtaken(3, 30, 4, 40))
	require.True(t, overtaken(3, 30, 3, 31))
	require.False(t, overtaken(3, 30, 3, 30))
	require.False(t, overtaken(3, 30, 2, 20))
	require.False(t, overtaken(3, 30, 0, 0), "it knows nothing")
}
