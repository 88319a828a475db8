package raftgroup

import (
	"context"
	"log/slog"
	"net"

	"github.com/hashicorp/raft"
	sundog "github.com/sundog-kv/sundog"
)

// StoreConfig says how a store reports.
type StoreConfig struct {
	Logger  *slog.Logger // nil: discard
	Metrics *Metrics     // nil: none
	// Fatal is called once when a write or sync of the file failed. What is on
	// disk is then unknown (a failed fsync drops the dirty pages it could not
	// write), so it must end the process; nil panics.
	Fatal func(error)
	// CacheBytes bounds the entries kept in memory, all groups together; 0 is 64 MiB.
	CacheBytes int64
}

// Store is the log and stable store of all groups of a node: one bbolt file.
type Store struct{}

// OpenStore opens or makes the file.
func OpenStore(path string, cfg StoreConfig) (*Store, error) { return nil, sundog.Unavailable }

// Group returns the group's part of the store.
func (s *Store) Group(id GroupID) *GroupLog { return nil }

// Close ends the committer and releases the file.
func (s *Store) Close() error { return nil }

// GroupLog is one group's raft.LogStore and raft.StableStore.
type GroupLog struct{}

// Lanes of a Mux.
const (
	LaneBulk     = "bulk"
	LaneUrgent   = "urgent"
	LaneSnapshot = "snapshot"
)

// MuxConfig describes a node's transport.
type MuxConfig struct {
	Self    sundog.NodeID
	Dial    func(ctx context.Context, node sundog.NodeID, lane string) (net.Conn, error)
	Logger  *slog.Logger
	Metrics *Metrics
}

// Mux carries the RPCs of all groups of a node.
type Mux struct{}

// NewMux makes a transport; it dials when there is something to send.
func NewMux(cfg MuxConfig) *Mux { return &Mux{} }

// Accept takes over a connection.
func (m *Mux) Accept(conn net.Conn, peer sundog.NodeID, lane string) error { return sundog.Unavailable }

// Transport is the raft.Transport of one group.
func (m *Mux) Transport(id GroupID, self string) raft.Transport { return nil }

// Close ends all connections.
func (m *Mux) Close() error { return nil }

// Group is one replica of a Raft group.
type Group struct{}

// Open starts the replica on what its store holds.
func Open(cfg Config) (*Group, error) {
	_, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return nil, sundog.Unavailable
}

// Bootstrap gives an empty group its first members.
func (g *Group) Bootstrap(servers []string) error { return sundog.Unavailable }

// Propose commits one command and returns the machine's result for it.
func (g *Group) Propose(ctx context.Context, command []byte) (any, error) {
	return nil, sundog.Unavailable
}

// Barrier returns after an entry made after the call was applied.
func (g *Group) Barrier(ctx context.Context) error { return sundog.Unavailable }

// Status tells what this replica knows.
func (g *Group) Status() Status { return Status{} }

// AddVoter makes server a voter.
func (g *Group) AddVoter(ctx context.Context, server string, prevIndex uint64) error {
	return sundog.Unavailable
}

// AddNonvoter makes server a learner.
func (g *Group) AddNonvoter(ctx context.Context, server string, prevIndex uint64) error {
	return sundog.Unavailable
}

// RemoveServer takes server out of the group.
func (g *Group) RemoveServer(ctx context.Context, server string, prevIndex uint64) error {
	return sundog.Unavailable
}

// Snapshot takes a snapshot now.
func (g *Group) Snapshot(ctx context.Context) error { return sundog.Unavailable }

// Close ends the replica.
func (g *Group) Close() error { return nil }
