package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// A replica that differs is another matter than one that did not answer.
func TestCheckDetail(t *testing.T) {
	const sum, other = "index 7, 3 keys, hash aa", "index 7, 3 keys, hash bb"
	for _, c := range []struct {
		text       string
		differs    bool
		silent     []sundog.NodeID
		leaderless bool
	}{
		{text: "replica 0000000000000001/1: " + sum + "; replica 0000000000000002/1: " + other, differs: true},
		{text: "replica 0000000000000001/1: " + sum + "; replica 0000000000000002/3 did not answer: unavailable: x; y", silent: []sundog.NodeID{2}},
		{text: "replica 0000000000000001/1: " + sum + "; replica 0000000000000002/1: " + other + "; replica 0000000000000003/1 did not answer: x", differs: true, silent: []sundog.NodeID{3}},
		{text: "the leader 0000000000000009 did not begin: timeout", silent: []sundog.NodeID{9}},
		{text: "no leader answers", leaderless: true},
		{text: "something else", differs: true},
	} {
		d := CheckDetail{Text: c.text}
		d.read()
		require.Equal(t, CheckDetail{Text: c.text, Differs: c.differs, Silent: c.silent, Leaderless: c.leaderless}, d)
		require.Equal(t, c.differs, CheckReport{Details: []CheckDetail{{}, d}}.Differs())
	}
	d := CheckDetail{Equal: true}
	d.read()
	require.False(t, d.Differs)
}
