package client

import (
	"fmt"
	"regexp"

	"github.com/sundog-kv/sundog"
)

// CheckReport is the outcome of comparing all replicas of a pool.
type CheckReport struct {
	Partitions int   // compared
	Equal      bool  // every replica of every partition answered, and with the same hash
	Keys       int64 // in the whole pool, one copy
	Details    []CheckDetail
}

// Differs reports whether replicas differ; where it is false and Equal too, some
// did not answer.
func (r CheckReport) Differs() bool {
	for _, d := range r.Details {
		if d.Differs {
			return true
		}
	}
	return false
}

// CheckDetail is one partition whose replicas differ or did not answer.
type CheckDetail struct {
	Partition  sundog.Partition
	Equal      bool
	Keys       int64
	Text       string          // what differs, for a person
	Differs    bool            // replicas that answered have not the same hash
	Silent     []sundog.NodeID // replicas that did not answer
	Leaderless bool            // no leader answered, so nothing was compared
}

// String says which partition, and what is the matter with it.
func (d CheckDetail) String() string {
	return fmt.Sprintf("partition %d: %s", d.Partition, d.Text)
}

// What a node writes about a replica.
const (
	silentText = `replica ([0-9a-f]{16})/\d+ did not answer|the leader ([0-9a-f]{16}) did not begin`
	sumText    = `replica [0-9a-f]{16}/\d+: (index \d+, \d+ keys, hash [0-9a-f]*)`
	noLeader   = "no leader answers"
)

// read takes from the text who was silent, and whether those who were not
// differ. A text that says neither is taken for a difference.
func (d *CheckDetail) read() {
	if d.Equal {
		return
	}
	for _, m := range regexp.MustCompile(silentText).FindAllStringSubmatch(d.Text, -1) {
		if id, err := sundog.ParseNodeID(m[1] + m[2]); err == nil {
			d.Silent = append(d.Silent, id)
		}
	}
	sums := map[string]bool{}
	for _, m := range regexp.MustCompile(sumText).FindAllStringSubmatch(d.Text, -1) {
		sums[m[1]] = true
	}
	d.Leaderless = d.Text == noLeader
	d.Differs = len(sums) > 1 || len(d.Silent) == 0 && !d.Leaderless
}
