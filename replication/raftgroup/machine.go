package raftgroup

import (
	"io"

	"github.com/sundog-kv/sundog"
)

// Entry is one committed log entry: the commands that a leader packed together.
type Entry struct {
	Index, Term uint64
	Clock       sundog.Clock // the leader's, read when the entry was made
	// Commands are in proposal order. There are none in an entry that only
	// carries a barrier; it is applied all the same, since its Clock counts.
	// The slices belong to the log: keep no reference and change nothing.
	Commands [][]byte
}

// Machine is the state machine of a group. Apply, Snapshot and Restore are
// called one at a time, from one goroutine.
type Machine interface {
	// Apply carries out one entry and returns one result for each command. It
	// must be deterministic and has no way to refuse. Returning another number
	// of results stops the group for good (it has diverged or cannot go on):
	// nothing more is applied, waiting proposals get Unknown, and
	// Config.OnFailure is called.
	Apply(Entry) []any
	// Snapshot captures the state after the last Apply and returns quickly; the
	// capture is written out beside further Apply calls.
	Snapshot() (Snapshot, error)
	// Restore replaces the whole state by what a Snapshot wrote. The reader ends
	// with io.EOF after exactly those bytes, or with an error of kind Corrupt.
	// An error stops the group as a refused Apply does.
	Restore(io.Reader) error
}

// Snapshot is a captured state.
type Snapshot interface {
	// WriteTo writes the state; it runs beside Apply, on another goroutine.
	WriteTo(w io.Writer) (int64, error)
	// Release ends the capture. It is called exactly once, also when WriteTo was
	// never called.
	Release()
}
