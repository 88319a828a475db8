package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
)

// interruptGrace is how long a command that was interrupted may take to tell
// what it has done. What then still waits, for a device or a full pipe, is left.
const interruptGrace = 2 * time.Second

// interruption is the end of a command by a signal; it has an exit code of its
// own, whatever the kind of what it broke off.
type interruption struct{ e *sundog.Error }

// Error returns the message alone.
func (i *interruption) Error() string { return i.e.Msg }

// Unwrap gives the kind: Closed, or Unknown where a change was under way.
func (i *interruption) Unwrap() error { return i.e }

// interruptedBy makes the error of a command that a signal ended with err.
func interruptedBy(err error) error {
	if errors.Is(err, sundog.Unknown) {
		return &interruption{sundog.Errorf(sundog.Unknown, "interrupted after the change was sent and before it was answered")}
	}
	return &interruption{sundog.Errorf(sundog.Closed, "interrupted")}
}

// interruptible ends the context at the first signal.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-a.signals:
			a.interrupted.Store(true)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-stopped }
}

// untilInterrupted runs f, whose context ends at the first signal. f then has
// interruptGrace, or until a second signal, to return; one that does not is left
// behind with nothing more to say, for the process is to exit.
func (a *app) untilInterrupted(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	select {
	case err := <-ended:
		return a.endedBy(err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(interruptGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return a.endedBy(err)
	case <-grace.C:
	case <-a.signals:
	}
	a.stdout.seal()
	return interruptedBy(nil)
}

// endedBy tells an interruption from other errors.
func (a *app) endedBy(err error) error {
	if _, told := errors.AsType[*interruption](err); err == nil || told || !a.interrupted.Load() {
		return err
	}
	return interruptedBy(err)
}

// await returns what f does, or the error of ctx when that ends first; f is left
// behind then.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		v, err := f()
		ended <- outcome{v, err}
	}()
	select {
	case o := <-ended:
		return o.v, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// patientReader reads from a source that may block for ever: a Read ends with
// ctx, or when the source was silent for patience (0: any time).
type patientReader struct {
	ctx      context.Context
	in       io.Reader
	patience time.Duration
	buf      []byte // what a Read that is left behind goes on to fill
	err      error  // of a Read that was left; there is no other after it
}

// Read implements io.Reader.
func (r *patientReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.buf == nil {
		r.buf = make([]byte, 64<<10)
	}
	ctx := r.ctx
	if r.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.patience)
		defer cancel()
	}
	size := min(len(p), len(r.buf))
	var failed error
	n, err := await(ctx, func() (int, error) {
		n, err := r.in.Read(r.buf[:size])
		failed = err
		return n, nil
	})
	if err != nil {
		r.err = err
		if r.ctx.Err() == nil {
			r.err = sundog.Errorf(sundog.Timeout, "nothing came for %v", r.patience)
		}
		return 0, r.err
	}
	return copy(p, r.buf[:n]), failed
}

// given is the --timeout of the command line, 0 where it has none.
func (a *app) given(cmd *cobra.Command) (time.Duration, error) {
	if cmd.Flags().Changed("timeout") && a.timeout <= 0 {
		return 0, sundog.Errorf(sundog.Invalid, "--timeout %v: use a positive one, such as 5s", a.timeout)
	}
	return a.timeout, nil
}

// stdinName is how messages call the file of that name.
func stdinName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

// alsoNotify makes signals that would end the process at once interrupt it, for a
// command that has to clean up.
func (a *app) alsoNotify(signals ...os.Signal) {
	if a.notify != nil {
		a.notify(signals...)
	}
}
