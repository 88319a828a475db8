package raftgroup

import (
	"time"

	"github.com/sundog-kv/sundog"
)

// Status is what a replica knows of its group at one moment.
type Status struct {
	ID      GroupID
	Self    string
	State   string // "follower", "candidate", "leader", "shutdown" or "failed"
	Leading bool
	Leader  sundog.NodeID // 0: not known
	Term    uint64
	// Commit is the highest index known to be committed, Applied the highest
	// that the machine has carried out (entries without commands included),
	// LastIndex the last in the log.
	Commit, Applied, LastIndex uint64
	Members                    []string // voters' server ids, newest configuration
	Learners                   []string // non-voters' server ids
	// ConfigIndex is the index of the newest committed configuration this
	// replica has seen applied: the prevIndex of the next change. 0: not known
	// yet.
	ConfigIndex uint64
	// LastContact is the time since the leader was heard, 0 on the leader
	// itself, negative when it never was.
	LastContact time.Duration
	// Failure is why the group has stopped for good, nil while it has not.
	Failure error
}
