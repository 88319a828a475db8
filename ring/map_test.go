package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

func TestMapLookups(t *testing.T) {
	m := sampleMap(t)
	for _, n := range m.Nodes {
		got, ok := m.Node(n.ID)
		require.True(t, ok)
		require.Equal(t, n, got)
	}
	_, ok := m.Node(0xfff)
	require.False(t, ok)
	for _, p := range m.Pools {
		got, ok := m.Pool(p.ID)
		require.True(t, ok)
		require.Equal(t, p, got)
		got, ok = m.PoolByName(p.Name)
		require.True(t, ok)
		require.Equal(t, p, got)
	}
	_, ok = m.Pool(2)
	require.False(t, ok)
	_, ok = m.PoolByName("")
	require.False(t, ok)
	require.Equal(t, sundog.Partition(12182*8>>14), m.PartitionOf([]byte("foo")))
	require.Equal(t, m.Placement[7], m.Owners(7))
	require.Nil(t, m.Owners(8))
	require.Nil(t, youngMap().Owners(0))
}

func TestServerID(t *testing.T) {
	r := Replica{Node: 0xabc, Incarnation: 4294967295}
	require.Equal(t, "0000000000000abc/4294967295", r.ServerID())
	got, err := ParseServerID(r.ServerID())
	require.NoError(t, err)
	require.Equal(t, r, got)
	for _, s := range []string{
		"", "/", "0000000000000abc", "0000000000000abc/", "0000000000000abc/0", "0000000000000abc/01",
		"0000000000000abc/+1", "0000000000000abc/4294967296", "0000000000000abc/1/2", "abc/1",
		"0000000000000000/1", "0000000000000ABC/1", " 0000000000000abc/1",
	} {
		_, err := ParseServerID(s)
		require.ErrorIs(t, err, sundog.Invalid, "%q", s)
	}
}

func TestCatalogRoleNames(t *testing.T) {
	require.Equal(t, "none voter standby catalog role 9",
		None.String()+" "+Voter.String()+" "+Standby.String()+" "+CatalogRole(9).String())
}
