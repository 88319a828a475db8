package client

import (
	"fmt"

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
