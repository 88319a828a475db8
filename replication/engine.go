package replication

import (
	"context"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// Engine is one replica of one partition. It is safe for concurrent use.
//
// Keys that a caller passes must belong to the engine's partition; the node
// checks that before it calls, since it alone knows the map that the request
// was routed by.
type Engine interface {
	// Mutate executes ops and returns one result for each, in order. Every op
	// is all or nothing by itself; the ops of one call are not one transaction,
	// but those of one key are executed in their order. A result whose error is
	// of kind Unknown may have been executed or may yet be; any other error
	// means that the op had no effect. The engine does not keep keys or values
	// after it returns.
	Mutate(ctx context.Context, ops []rpc.Op) []rpc.OpResult
	// Get reads keys of one pool and returns one result for each, in order. A
	// key that is not there is NotFound. The values are the caller's.
	Get(ctx context.Context, pool sundog.PoolID, keys [][]byte) []rpc.GetResult
	// Scan returns one page of a pool's keys in this partition.
	Scan(ctx context.Context, req rpc.ScanRequest) (rpc.ScanReply, error)
	// Status says what the replica holds and how it is. It does not block.
	Status() Status
	// Close stops the replica and joins what it started. Calls that are waiting
	// end with Closed, or Unknown where a mutation may have been executed.
	Close() error
}

// Checker is an engine whose replicas can be compared.
type Checker interface {
	// Check makes every replica hash its table of the pool at one point of the
	// partition's history, and returns the name under which each will keep its
	// sum.
	Check(ctx context.Context, pool sundog.PoolID) (CheckID, error)
	// CheckResult returns this replica's sum; false while there is none (not
	// yet hashed, not yet applied, or forgotten: a replica keeps a few dozen).
	CheckResult(id CheckID) (CheckSum, bool)
}

// CheckID names one check of one partition. It is random, never zero.
type CheckID uint64

// CheckSum is one replica's answer to a check. Two replicas hold the same data
// at the checked point when all three fields are equal.
type CheckSum struct {
	Index uint64   // log index of the check
	Hash  [16]byte // order-independent sum over key, version, deadline and value
	Keys  int64    // keys in the pool's table
}

// Status is what a replica says of itself.
type Status struct {
	Partition sundog.Partition
	Self      string        // raft server id, "node/incarnation"
	Leading   bool          // this replica leads and takes writes
	Leader    sundog.NodeID // who leads, 0 if not known
	Term      uint64
	Applied   uint64 // index of the newest log entry applied
	Catalog   sundog.Epoch
	Members   []string // raft server ids of the group's configuration
	Pools     []PoolStatus
	Alarm     string // why the replica stopped applying; "" when it is well
}

// PoolStatus is one pool's share of a replica.
type PoolStatus struct {
	ID    sundog.PoolID
	Keys  int64
	Bytes int64 // keys and values
	Limit int64 // bytes that this partition may hold: the quota by P; -1 without a quota
}
