//go:build !mutant

package raftgroup

// Switches of the shipped path that tests turn to see that a checker can fail.
const (
	mutantAckBeforeSync    = false // the store answers before its commit
	mutantHeartbeatHandler = false // the transport honours raft's heartbeat handler
)
