package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

func TestSecretsMustBeLong(t *testing.T) {
	require.ErrorIs(t, CheckSecret(nil), sundog.Invalid)
	require.ErrorIs(t, CheckSecret(testSecret[:minSecret-1]), sundog.Invalid)
	require.NoError(t, CheckSecret(testSecret[:minSecret]))
}

// TestProofDependsOnEverything changes one bit anywhere in what is proved: the
// secret, the side, either message.
func TestProofDependsOnEverything(t *testing.T) {
	h := hello{minVersion: 1, maxVersion: 1, role: roleNode, identity: *nodeIdentity(1), protocol: "raft/bulk"}
	a := answer{status: statusProve, version: 1, identity: *nodeIdentity(2)}
	hb, ab := seal(h.encode()), seal(a.encode())
	want := prove(testSecret, labelDialler, hb, ab)
	require.Equal(t, want, prove(testSecret, labelDialler, hb, ab))
	require.NotEqual(t, want, prove(testSecret, labelServer, hb, ab))
	require.NotEqual(t, want, prove(testSecret[1:], labelDialler, hb, ab))
	for _, b := range [][]byte{hb, ab} {
		for i := range b {
			b[i] ^= 1
			require.NotEqual(t, want, prove(testSecret, labelDialler, hb, ab), "byte %d", i)
			b[i] ^= 1
		}
	}
}

func TestMethodNames(t *testing.T) {
	for _, m := range []Method{
		MethodPing, MethodGet, MethodMultiGet, MethodMutate, MethodScan, MethodMap, MethodPoolCreate, MethodPoolSet,
		MethodPoolDelete, MethodPoolDescribe, MethodNodes, MethodPartitions, MethodCheck,
	} {
		require.False(t, NodeOnly(m), m.String())
		require.NotContains(t, m.String(), " ")
	}
	for _, m := range []Method{MethodFound, MethodJoin, MethodMapPush, MethodStatus, MethodReplicaCheck, 63 + 1, 65535} {
		require.True(t, NodeOnly(m), m.String())
	}
	require.Equal(t, "method 999", Method(999).String())
}
