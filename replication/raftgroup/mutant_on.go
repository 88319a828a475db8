//go:build mutant

package raftgroup

import "os"

// Switches of the shipped path that tests turn to see that a checker can fail.
var (
	mutantAckBeforeSync    = os.Getenv("SUNDOG_MUTANT") == "ack-before-sync"
	mutantHeartbeatHandler = os.Getenv("SUNDOG_MUTANT") == "heartbeat-handler"
)
