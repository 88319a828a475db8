package datadir

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// Names inside the directory. Everything else belongs to other rooms.
const (
	lockName     = "lock"
	identityName = "identity.json"
	mapName      = "map"
	peersName    = "peers"
	stepsName    = "steps"
	tempSuffix   = ".tmp"
)

// Dir is an open data directory, locked for this process until Close.
type Dir struct {
	path  string
	lock  *os.File
	nonce uint64 // set by boot

	mu     sync.Mutex // guards id, steps and closed, and orders the writes of all files
	id     identity
	steps  map[StepKey]uint64
	closed bool
}

// Open creates the directory (mode 0700) or opens it, locks it for this
// process, raises its boot counter by one and syncs that before it returns. A
// start that the cluster refused ([Dir.NoteRefusal]) is not counted: the next
// one repeats it, counter and nonce. now is noted in the identity file for the
// operator; nothing depends on it.
//
// Errors: Conflict when another process (or another Dir of this one) has it
// open, and when the directory is fenced ([Dir.Fence]); Corrupt when the identity fails its checksum or is missing beside
// data; Invalid when it was written by a newer version, when the path is not a
// usable directory, or when it holds files that are not Sundog's.
func Open(path string, now time.Time) (*Dir, error) {
	if path == "" {
		return nil, sundog.Errorf(sundog.Invalid, "no data directory given")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "data directory %s: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "data directory %s: %w", path, err)
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock}
	if err := d.boot(now); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

// boot reads or makes the identity, raises the boot counter and loads the steps.
func (d *Dir) boot(now time.Time) error {
	if err := d.removeTemps(); err != nil {
		return err
	}
	data, err := os.ReadFile(d.Path(identityName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.checkFresh(); err != nil {
			return err
		}
		d.id = identity{Node: sundog.NewNodeID(), Created: now.UTC()}
	case err != nil:
		return sundog.Errorf(sundog.Invalid, "data directory %s: %w", d.path, err)
	default:
		if d.id, err = decodeIdentity(data, d.Path(identityName)); err != nil {
			return err
		}
	}
	if d.id.Fenced != "" {
		return sundog.Errorf(sundog.Conflict, "data directory %s is fenced for good: %s; move it away, and let the node join with an empty one", d.path, d.id.Fenced)
	}
	next := d.id
	if d.id.Refused != nil {
		d.nonce = d.id.Refused.Nonce
	} else {
		d.nonce = newNonce()
		next.Boot++
	}
	next.Started = now.UTC()
	if err := d.writeIdentity(next); err != nil {
		return err
	}
	return d.loadSteps()
}

// checkFresh refuses to make a new identity beside anybody's files: an old raft
// log under a new node id would be a voter with another's memory.
func (d *Dir) checkFresh() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return sundog.Errorf(sundog.Invalid, "data directory %s: %w", d.path, err)
	}
	var found []string
	for _, e := range entries {
		if n := e.Name(); n != lockName && n != "lost+found" {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil
	}
	if slices.Contains(found, mapName) || slices.Contains(found, stepsName) || slices.Contains(found, peersName) {
		return sundog.Errorf(sundog.Corrupt, "data directory %s holds a node's data but its %s is missing: "+
			"move the directory away and let the node join as a new one (an old copy of the file would be refused)", d.path, identityName)
	}
	return sundog.Errorf(sundog.Invalid, "data directory %s is not empty (%s) and is not Sundog's: choose an empty or new directory",
		d.path, summary(found))
}

func summary(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + ", ..."
}

// removeTemps drops what a crash left half-written; a file counts only once renamed.
func (d *Dir) removeTemps() error {
	for _, name := range []string{identityName, mapName, peersName, stepsName} {
		if err := os.Remove(d.Path(name + tempSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sundog.Errorf(sundog.Invalid, "data directory %s: %w", d.path, err)
		}
	}
	return nil
}

func newNonce() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// ID returns the node's id, made when the directory was created.
func (d *Dir) ID() sundog.NodeID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id.Node
}

// Boot returns this start's number: 1 for the first Open, one more for each that
// follows one that was not refused.
func (d *Dir) Boot() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id.Boot
}

// Nonce returns a random number of this start, never zero: two processes that run
// the same boot of a cloned directory differ in it. It is written down only when
// the start was refused.
func (d *Dir) Nonce() uint64 { return d.nonce }

// Path returns a path inside the directory. Nothing is created.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Close unlocks the directory. It may be called more than once; every writing
// method of a closed Dir fails with kind Closed.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.release()
}

// release gives the lock back; the lock file stays, since removing it would let
// two processes lock two files of one name.
func (d *Dir) release() error {
	err := releaseLock(d.lock)
	return errors.Join(err, d.lock.Close())
}
