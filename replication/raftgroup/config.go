package raftgroup

import (
	"log/slog"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// Config describes one group on this node.
type Config struct {
	ID   GroupID
	Self string // this replica's raft server id, "node/incarnation"

	Store       *Store
	Mux         *Mux
	SnapshotDir string // of the node; the group makes its own folder in it
	Machine     Machine

	Timings sundog.Timings      // zero: sundog.DefaultTimings
	Clock   func() sundog.Clock // stamps entries at proposal; must be set
	Logger  *slog.Logger        // nil: discard
	Metrics *Metrics            // nil: none

	// OnLeader is told of each change of this replica's leadership, in order,
	// from the group's own goroutine. A change that is over before the callback
	// returns may be left out, but the last one told is always the truth. It may
	// call the group's methods, and should return soon.
	OnLeader func(leading bool, term uint64)
	// OnFailure is told once, from the group's own goroutine, when the group has
	// stopped for good (see Machine). Close is still to be called.
	OnFailure func(error)

	// SnapshotBytes of new log start a snapshot; 0 is 64 MiB.
	SnapshotBytes int64
	// TrailingBytes of log stay behind a snapshot for followers that lag a
	// little; 0 is 16 MiB. At least one entry always stays.
	TrailingBytes int64
	// MaxBatchBytes and MaxBatch bound the commands packed into one entry, which
	// may be exceeded by a single command; 0 is 256 KiB and 1,024.
	MaxBatchBytes, MaxBatch int
	// MaxInFlight is the number of entries proposed and not yet applied; 0 is 2.
	MaxInFlight int
	// MaxQueueBytes of waiting commands are taken; more are refused as
	// Unavailable. 0 is 32 MiB.
	MaxQueueBytes int
}

const (
	defaultSnapshotBytes = 64 << 20
	defaultTrailingBytes = 16 << 20
	defaultBatchBytes    = 256 << 10
	defaultBatch         = 1024
	defaultInFlight      = 2
	defaultQueueBytes    = 32 << 20
	// maxAppendEntries bounds by number what raft sends and applies at once; with
	// entries of defaultBatchBytes one request is at most 8 MiB.
	maxAppendEntries = 32
	maxCommitTimeout = 50 * time.Millisecond
)

// withDefaults checks the configuration and fills what is zero.
func (c Config) withDefaults() (Config, error) {
	if _, err := ring.ParseServerID(c.Self); err != nil {
		return c, err
	}
	if c.Store == nil || c.Mux == nil || c.Machine == nil || c.Clock == nil || c.SnapshotDir == "" {
		return c, sundog.Errorf(sundog.Invalid, "raft group %s: Store, Mux, Machine, Clock and SnapshotDir must be set", c.ID)
	}
	if c.Timings == (sundog.Timings{}) {
		c.Timings = sundog.DefaultTimings()
	}
	if c.Timings.Heartbeat < 20*time.Millisecond {
		return c, sundog.Errorf(sundog.Invalid, "raft group %s: heartbeat timeout %s: use 20ms or more", c.ID, c.Timings.Heartbeat)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&c.TrailingBytes, defaultTrailingBytes)
	setDefault(&c.MaxBatchBytes, defaultBatchBytes)
	setDefault(&c.MaxBatch, defaultBatch)
	setDefault(&c.MaxInFlight, defaultInFlight)
	setDefault(&c.MaxQueueBytes, defaultQueueBytes)
	return c, nil
}

func setDefault[T int | int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}
