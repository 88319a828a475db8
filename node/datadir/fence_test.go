package datadir

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

func TestPeerFence(t *testing.T) {
	type hello struct {
		node        sundog.NodeID
		boot, nonce uint64
		kind        sundog.Kind
	}
	for name, hellos := range map[string][]hello{
		"reconnects":            {{1, 3, 7, 0}, {1, 3, 7, 0}},
		"restarts":              {{1, 3, 7, 0}, {1, 4, 8, 0}, {1, 4, 8, 0}},
		"restored":              {{1, 3, 7, 0}, {1, 2, 8, sundog.Conflict}, {1, 3, 7, 0}},
		"the old after the new": {{1, 3, 7, 0}, {1, 4, 8, 0}, {1, 3, 7, sundog.Conflict}},
		"cloned":                {{1, 3, 7, 0}, {1, 3, 8, sundog.Conflict}, {1, 3, 7, 0}},
		"others":                {{1, 3, 7, 0}, {2, 1, 8, 0}},
		"incomplete":            {{0, 3, 7, sundog.Invalid}, {1, 0, 7, sundog.Invalid}, {1, 3, 0, sundog.Invalid}},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewPeerFence()
			for i, h := range hellos {
				err := f.Check(h.node, h.boot, h.nonce)
				require.Equal(t, h.kind, sundog.KindOf(err), "hello %d: %v", i, err)
				if h.kind == sundog.Conflict {
					require.ErrorContains(t, err, h.node.String())
					require.ErrorContains(t, err, "cloned")
				}
			}
		})
	}
}

// The catalog knows a boot and no nonce: the first process that says it is
// taken for it, older ones are not.
func TestPeerFenceRaise(t *testing.T) {
	f := NewPeerFence()
	f.Raise(1, 5)
	require.ErrorIs(t, f.Check(1, 4, 7), sundog.Conflict)
	require.NoError(t, f.Check(1, 5, 7))
	f.Raise(1, 5)
	f.Raise(1, 3)
	require.ErrorIs(t, f.Check(1, 5, 8), sundog.Conflict)
	require.NoError(t, f.Check(1, 5, 7))
	f.Raise(1, 6)
	require.ErrorIs(t, f.Check(1, 5, 7), sundog.Conflict)
}

// Two processes on two copies of one directory.
func TestPeerFenceOnClones(t *testing.T) {
	d := open(t, t.TempDir())
	clone := identity{Node: d.ID(), Boot: d.Boot()}
	f := NewPeerFence()
	require.NoError(t, f.Check(d.ID(), d.Boot(), d.Nonce()))
	require.ErrorIs(t, f.Check(clone.Node, clone.Boot, newNonce()), sundog.Conflict)
}
