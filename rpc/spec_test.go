package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

func TestSpecMessage(t *testing.T) {
	for _, spec := range []sundog.PoolSpec{
		{}, sundog.PoolSpec{Consistency: sundog.Strong}.WithDefaults(),
		{Consistency: sundog.Eventual, Replicas: 5, Quota: 1 << 40, Acks: sundog.AcksAll, Durability: sundog.Memory, MaxValue: 77},
	} {
		require.Equal(t, spec, SpecOf(SpecMessage(spec)))
	}
	require.Zero(t, SpecOf(nil))
	odd := SpecOf(&rpcpb.PoolSpec{Consistency: 256 + uint32(sundog.Strong)})
	require.NotEqual(t, sundog.Strong, odd.Consistency)
	require.Error(t, odd.WithDefaults().Validate())
}
