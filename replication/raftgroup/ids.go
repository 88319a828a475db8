package raftgroup

import (
	"fmt"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// GroupID names a Raft group in the log store and on the wire: 0 is the
// catalog, 1+p is partition p.
type GroupID uint32

// Catalog is the group that holds the cluster map.
const Catalog GroupID = 0

// PartitionGroup is the group of a partition.
func PartitionGroup(p sundog.Partition) GroupID { return 1 + GroupID(p) }

// String returns "catalog" or "partition p".
func (id GroupID) String() string {
	if id == Catalog {
		return "catalog"
	}
	return fmt.Sprintf("partition %d", uint32(id)-1)
}

// splitServer returns the node and the incarnation of a raft server id or
// address, 0 if it is none.
func splitServer(server string) (sundog.NodeID, uint32) {
	r, err := ring.ParseServerID(server)
	if err != nil {
		return 0, 0
	}
	return r.Node, r.Incarnation
}

// nodeOf is the node part of splitServer.
func nodeOf(server string) sundog.NodeID {
	node, _ := splitServer(server)
	return node
}
