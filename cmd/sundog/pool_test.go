package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog/client"
)

// Partitions that do not answer must not look like lost data.
func TestDescribedInPart(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &output{w: &out}}
	p := client.PoolStatus{PoolInfo: client.PoolInfo{Name: "p"}, Used: 1 << 20, Keys: 1000, Ready: 20, Partitions: 32}
	require.NoError(t, a.described(p))
	require.Contains(t, out.String(), "1.0 MiB in the 20 of 32 partitions that answered")
	require.Contains(t, out.String(), "1,000 in the 20 of 32 partitions that answered")
	out.Reset()
	p.Used, p.Keys, p.Ready = 0, 0, 0
	require.Equal(t, exitUnavailable, exitCode(a.described(p)))
	require.Empty(t, out.String())
	p.Ready = 32
	require.NoError(t, a.described(p))
	require.NotContains(t, out.String(), "answered")
}
