package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/sundog-kv/sundog"
)

// output is stdout. It remembers that a write failed, so that a command whose
// result did not get out does not end as if it had.
type output struct {
	w      io.Writer
	mu     sync.Mutex // held by a write under way; guards all below
	sealed bool
	err    error
}

// Write implements io.Writer. After the first failure it writes no more.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return len(p), nil
	}
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		o.err = sundog.Errorf(sundog.Internal, "write the result: %w", err)
	}
	return n, o.err
}

// seal throws away what is written from now on. It does not wait for a write
// that hangs.
func (o *output) seal() {
	if o.mu.TryLock() {
		o.sealed = true
		o.mu.Unlock()
	}
}

// last writes p though sealed, unless another write hangs.
func (o *output) last(p []byte) {
	if o.mu.TryLock() {
		defer o.mu.Unlock()
		if _, err := o.w.Write(p); err != nil && o.err == nil {
			o.err = sundog.Errorf(sundog.Internal, "write the result: %w", err)
		}
	}
}

// failed is the error of the first write that failed, nil for none.
func (o *output) failed() error {
	if !o.mu.TryLock() {
		return nil // one hangs; the command was interrupted
	}
	defer o.mu.Unlock()
	return o.err
}

// terminal says whether a person sees what is written.
func (o *output) terminal() bool {
	f, ok := o.w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
