// Package history records what concurrent clients did to a few keys and judges
// with porcupine whether it was linearizable (Herlihy and Wing, 1990): each
// operation takes effect at one instant between its call and its return.
//
// An operation whose outcome its client does not know stays open for ever: it may
// take effect at any time after its call, or, at the very end, where nobody sees
// it. An operation that surely did not execute is not recorded, and neither is a
// read without an answer.
//
// Versions are part of the state: each acknowledged change must have a version
// above the one before it, and a read must return the version of what it saw.
package history

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sundog-kv/sundog"
)

// Code is the kind of an operation.
type Code int

// The operations.
const (
	Get Code = iota
	Put
	Delete
	PutIfAbsent
	PutIfVersion
)

// Op is one call on one key. Values are unique over the whole history, so that
// a value names the write it came from.
type Op struct {
	Code      Code
	Key       string
	Value     string         // of a put
	IfVersion sundog.Version // of PutIfVersion
}

// Result is what the client was told.
type Result struct {
	Unknown bool           // no outcome; everything else is unset
	Found   bool           // Get, Delete: there was something
	Applied bool           // conditional puts: the condition held
	Value   string         // Get
	Version sundog.Version // of the new value, or of what was read; zero if not told
}

// Recorder collects operations; safe for concurrent use.
type Recorder struct {
	start time.Time

	mu  sync.Mutex // guards ops
	ops []porcupine.Operation
}

// NewRecorder starts an empty history.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Call notes the moment before an operation is sent.
func (r *Recorder) Call() int64 { return int64(time.Since(r.start)) }

// Return records an operation of a client that was called at the given moment
// and ends now, or never if its outcome is unknown.
func (r *Recorder) Return(client int, call int64, op Op, res Result) {
	end := int64(time.Since(r.start))
	if res.Unknown {
		end = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Call: call, Return: end, Input: op, Output: res})
}

// Len returns the number of operations recorded, and of those with an unknown outcome.
func (r *Recorder) Len() (all, unknown int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range r.ops {
		if op.Output.(Result).Unknown {
			unknown++
		}
	}
	return len(r.ops), unknown
}

// Check returns nil if the history is linearizable. An answer that does not come
// within the limit is an error too: a checker that does not know has failed. A
// picture of a bad history is written below dir.
func (r *Recorder) Check(limit time.Duration, dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict, info := porcupine.CheckOperationsVerbose(model, r.ops, limit)
	switch verdict {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("porcupine gave no verdict on %d operations within %v", len(r.ops), limit)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("history of %d operations is not linearizable (and no picture: %w)", len(r.ops), err)
	}
	picture := filepath.Join(dir, "history.html")
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		return fmt.Errorf("history of %d operations is not linearizable (and no picture: %w)", len(r.ops), err)
	}
	return fmt.Errorf("history of %d operations is not linearizable: see %s", len(r.ops), picture)
}
