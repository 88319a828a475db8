//go:build mutant

package founding

import (
	"testing"

	"pgregory.net/rapid"
)

// The checker of TestNeverTwoClusters must be able to fail: with a node that
// accepts a second founding some schedule ends in two clusters.
func TestMutantAcceptTwice(t *testing.T) {
	was := mutantAcceptTwice
	mutantAcceptTwice = true
	defer func() { mutantAcceptTwice = was }()
	draw := rapid.Custom(func(t *rapid.T) func(*testing.T) []string {
		expect, nodes, events := schedule(t)
		return func(t *testing.T) []string {
			clusters, _ := play(t, expect, nodes, events)
			return clusters
		}
	})
	const schedules = 5000
	for seed := range schedules {
		if clusters := draw.Example(seed)(t); len(clusters) > 1 {
			t.Logf("schedule %d ends in %d clusters", seed, len(clusters))
			return
		}
	}
	t.Fatalf("no schedule of %d ends in two clusters: the checker is blind", schedules)
}
