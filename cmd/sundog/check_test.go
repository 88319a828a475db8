package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// One line a node that is away, however many partitions it has; and its absence
// is no corruption.
func TestCheckedReport(t *testing.T) {
	away := client.CheckReport{Partitions: 32, Keys: 12000}
	for p := range sundog.Partition(32) {
		away.Details = append(away.Details, client.CheckDetail{Partition: p, Keys: 1, Silent: []sundog.NodeID{7}})
	}
	differing := away
	differing.Details = append(differing.Details[:31:31], client.CheckDetail{Partition: 31, Differs: true, Text: "hashes"})
	headless := client.CheckReport{Partitions: 4, Details: []client.CheckDetail{{Partition: 0, Leaderless: true}, {Partition: 1, Leaderless: true}, {Partition: 3, Leaderless: true}}}
	for _, c := range []struct {
		report client.CheckReport
		code   int
		kind   string
		want   []string
	}{
		{client.CheckReport{Partitions: 32, Equal: true}, 0, "", []string{"32 partitions, 0 keys, equal: true"}},
		{away, 4, "unavailable", []string{"32 partitions, 12,000 keys, equal: false", "node 0000000000000007 did not answer for 32 partitions: 0-31"}},
		{differing, 1, "corrupt", []string{"32 partitions, 12,000 keys, equal: false", "partition 31: hashes", "node 0000000000000007 did not answer for 31 partitions: 0-30"}},
		{headless, 4, "unavailable", []string{"4 partitions, 0 keys, equal: false", "3 partitions without a leader that answers: 0-1, 3"}},
	} {
		var out bytes.Buffer
		a := &app{stdout: &output{w: &out}}
		require.Equal(t, c.code, exitCode(a.checked("p", c.report)))
		require.Equal(t, c.want, strings.Split(strings.TrimSpace(out.String()), "\n"))
		out.Reset()
		a.json = true
		require.Equal(t, c.code, exitCode(a.checked("p", c.report)))
		var v checkJSON
		require.NoError(t, json.Unmarshal(out.Bytes(), &v))
		require.Equal(t, len(c.report.Details), len(v.Details))
		if c.kind != "" {
			require.Equal(t, c.kind, v.Error.Kind)
		}
	}
}

func TestDeadNode(t *testing.T) {
	v := nodeOf(client.NodeStatus{State: "dead", SafeToStop: true})
	require.False(t, v.SafeToStop)
	require.NotEmpty(t, v.Reason)
	require.False(t, nodeOf(client.NodeStatus{State: "suspect", SafeToStop: true}).SafeToStop)
	require.True(t, nodeOf(client.NodeStatus{State: "alive", SafeToStop: true}).SafeToStop)
}
