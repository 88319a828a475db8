package client

import (
	"log/slog"
	"time"

	"github.com/sundog-kv/sundog"
)

// DefaultTimeout is the deadline of a call whose context has none.
const DefaultTimeout = 5 * time.Second

// Options tune a [Client]. The zero value is good.
type Options struct {
	// Timeout is the deadline of a call whose context has none; 0 is
	// [DefaultTimeout].
	Timeout time.Duration
	// Lazy makes Dial return at once, without having reached any node; the first
	// call then waits for the cluster instead.
	Lazy bool
	// Cluster refuses every cluster but that of this id (32 hexadecimal digits);
	// empty takes the first that answers and stays with it.
	Cluster string
	// Logger gets connection and map changes at debug level; nil logs nothing.
	Logger *slog.Logger
}

// Via says by which path a value was read.
type Via string

// ViaRPC is a request served by the owner's CPU, the only path in this release.
const ViaRPC Via = "rpc"

// Item is what a pool keeps under a key.
type Item struct {
	Key      []byte
	Value    []byte // not nil; nil only in a Scan of keys alone
	Version  sundog.Version
	Deadline time.Time     // when the key disappears by itself, ms precision; zero: never
	Node     sundog.NodeID // who answered
	Via      Via
}

// TTL is the time left at now before the item disappears, at least 0; ok is
// false for an item that stays.
func (it Item) TTL(now time.Time) (left time.Duration, ok bool) {
	if it.Deadline.IsZero() {
		return 0, false
	}
	return max(0, it.Deadline.Sub(now)), true
}

// Pair is one key and value of a [Pool.MultiPut].
type Pair struct {
	Key, Value []byte
}

// GetResult is the outcome of one key of a [Pool.MultiGet].
type GetResult struct {
	Item Item
	Err  error
}

// PutResult is the outcome of one key of a [Pool.MultiPut] or [Pool.MultiDelete].
type PutResult struct {
	Version sundog.Version // of the mutation, where Err is nil
	Err     error
}

// PutOption makes a mutation conditional or gives it a lifetime.
type PutOption func(*putOptions)

type putOptions struct {
	absent    bool
	versioned bool
	version   sundog.Version
	ttl       time.Duration
}

// IfAbsent stores only where the key does not exist; else the error is of kind
// Exists. Not for Delete.
func IfAbsent() PutOption { return func(o *putOptions) { o.absent = true } }

// IfVersion acts only where the key has exactly this version, as Get or Put
// returned it; else the error is of kind Conflict (NotFound where it does not
// exist).
func IfVersion(v sundog.Version) PutOption {
	return func(o *putOptions) { o.versioned, o.version = true, v }
}

// TTL makes the key disappear d after the mutation executes: 1 ms or more,
// rounded up to whole milliseconds. Not for Delete.
func TTL(d time.Duration) PutOption { return func(o *putOptions) { o.ttl = d } }

// ScanOptions narrow a [Pool.Scan].
type ScanOptions struct {
	Prefix   []byte // only keys that begin with it
	KeysOnly bool   // leave the values out
	Limit    int    // at most so many items; 0: all
}

// PoolInfo is a pool as the map has it.
type PoolInfo struct {
	ID   sundog.PoolID
	Name string
	Spec sundog.PoolSpec
}

// PoolStatus is a pool with what it holds.
type PoolStatus struct {
	PoolInfo
	Used int64 // bytes of keys and values, one copy
	Keys int64
	// Ready of all Partitions have a leader that answered; Used and Keys count
	// these alone.
	Ready, Partitions int
}

// PoolChange names what [Client.SetPool] changes; nil leaves as it is.
type PoolChange struct {
	Quota    *int64 // bytes, 0: none
	MaxValue *int64 // bytes
}

// NodeStatus is one node of the cluster as the answering node sees it.
type NodeStatus struct {
	ID                   sundog.NodeID
	Listen, HTTP, Gossip string // host:port
	Zone                 string
	State                string // such as "alive", "suspect", "dead"
	Replicas, Leaders    int    // partitions it holds a copy of; that it leads
	SafeToStop           bool   // no group loses its quorum
	Reason               string // why not
}

// PartitionStatus is one partition's group.
type PartitionStatus struct {
	Partition sundog.Partition
	Leader    sundog.NodeID // 0: none known
	Replicas  []sundog.NodeID
	Term      uint64
	Applied   uint64 // raft index
}
