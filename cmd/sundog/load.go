package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// loadJSON is the line of load, also where some lines failed; the exit code then
// tells the worst of them (unknown before all others).
type loadJSON struct {
	Pool     string     `json:"pool"`
	Lines    int64      `json:"lines"`
	Loaded   int64      `json:"loaded"`   // acknowledged
	Replaced int64      `json:"replaced"` // not sent, since a later line of the batch has the key
	Failed   int64      `json:"failed"`   // surely not stored
	Unknown  int64      `json:"unknown"`  // sent and not answered, and the key has another value
	Bytes    int64      `json:"bytes"`    // of keys and values acknowledged
	Retried  int64      `json:"retried"`  // sent, or read, again after a failure that was none of the data's
	Seconds  float64    `json:"seconds"`
	Failures []string   `json:"failures,omitempty"` // the first few
	Error    *errorJSON `json:"error,omitempty"`    // the first failure
}

func (a *app) loadCommand() *cobra.Command {
	var lanes int
	var raw bool
	cmd := &cobra.Command{
		Use:   "load POOL FILE",
		Short: "Store every line of a file: key TAB value",
		Long: `Store every line of a file: key TAB value. FILE may be compressed with gzip, and
- is stdin. Empty lines are passed over. A key or value that begins with " is one
that scan quoted, and loses its quotes; --raw takes every byte as it is. A key that
comes twice keeps the value of its later line.

What surely was not stored is tried again while the cluster is away, for as long as
a minute without progress. What may have been stored is read: it counts as loaded
where it is there, is stored where the key does not exist, and counts as unknown
where the key has another value, which may be newer. --timeout is for each batch,
and where it is given for each wait for input. A load that was interrupted is safe
to run again.`,
		Example: "  sundog load pkgs packages.tsv.gz\n  sundog scan pkgs | sundog load copy -",
		Args:    args,
	}
	cmd.RunE = a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
		if lanes < 1 || lanes > 256 {
			return sundog.Errorf(sundog.Invalid, "--in-flight %d: use 1 to 256", lanes)
		}
		p, err := c.Pool(ctx, args[0])
		if err != nil {
			return err
		}
		patience, err := a.given(cmd)
		if err != nil {
			return err
		}
		in, size, err := a.open(ctx, args[1], patience)
		if err != nil {
			return err
		}
		bar, end := a.progress(size)
		start := time.Now()
		l := &loader{pool: p, lanes: lanes, raw: raw, patience: loadPatience, pause: retryPause}
		failed := l.load(ctx, io.TeeReader(in, bar), stdinName(args[1]))
		end()
		return a.loaded(args[0], l, time.Since(start), failed)
	})
	cmd.Flags().IntVar(&lanes, "in-flight", 8, "batches on their way at the same time")
	cmd.Flags().BoolVar(&raw, "raw", false, "take quotes as part of keys and values")
	return cmd
}

// open opens a file or, for -, stdin, to be read until ctx ends or nothing came
// for patience. size is 0 where it is not known. Only what can be read at once is
// closed, by the end of the process.
func (a *app) open(ctx context.Context, name string, patience time.Duration) (in io.Reader, size int64, err error) {
	if name == "-" {
		return &patientReader{ctx: ctx, in: a.stdin, patience: patience}, 0, nil
	}
	opening := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	f, err := await(opening, func() (*os.File, error) { return os.Open(name) })
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil, 0, sundog.Errorf(sundog.Timeout, "%s did not open within %v", name, patience)
	case err != nil:
		return nil, 0, sundog.Errorf(sundog.Invalid, "FILE: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return &patientReader{ctx: ctx, in: f, patience: patience}, size, nil
}

// progress shows how much of the file is read, on a terminal only.
func (a *app) progress(size int64) (bar io.Writer, end func()) {
	if size == 0 {
		size = -1 // a spinner
	}
	f, ok := a.stderr.(*os.File)
	if a.json || !ok || !term.IsTerminal(int(f.Fd())) {
		return io.Discard, func() {}
	}
	b := progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(f), progressbar.OptionSetDescription("loading"),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	return b, func() { _, _ = b.Clear(), b.Exit() }
}

// loaded reports the counts and makes the command's error.
func (a *app) loaded(pool string, l *loader, took time.Duration, failed error) error {
	v := loadJSON{
		Pool: pool, Lines: l.lines, Loaded: l.counts.loaded, Replaced: l.replaced, Failed: l.counts.failed, Unknown: l.counts.unknown,
		Bytes: l.counts.bytes, Retried: l.counts.retried, Seconds: took.Round(time.Millisecond).Seconds(),
	}
	switch first := l.counts.first; {
	case a.interrupted.Load():
		failed = &interruption{sundog.Errorf(sundog.Closed,
			"interrupted: %d of the %d lines read are stored; it is safe to run it again", v.Loaded+v.Replaced, v.Lines)}
	case len(first) > 0 && (failed == nil || errors.Is(failed, sundog.Closed)):
		failed = first[0]
		fallthrough
	default:
		for _, err := range first {
			v.Failures = append(v.Failures, textOf(err))
		}
		if v.Unknown > 0 && !errors.Is(failed, sundog.Unknown) {
			failed = sundog.Errorf(sundog.Unknown, "%d of %d lines were sent and not answered; first of all: %v", v.Unknown, v.Lines, failed)
		}
	}
	if failed != nil {
		e := errorOf(failed)
		v.Error = &e
	}
	a.show(v, func(w io.Writer) {
		rate := float64(v.Loaded) / max(took.Seconds(), 1e-9)
		fmt.Fprintf(w, "loaded %s keys, %s, in %.1f s (%s keys/s)", humanize.Comma(v.Loaded), bytesOf(v.Bytes), v.Seconds, humanize.Comma(int64(rate)))
		if v.Replaced > 0 {
			fmt.Fprintf(w, "; %s lines replaced by later ones", humanize.Comma(v.Replaced))
		}
		if v.Failed+v.Unknown > 0 {
			fmt.Fprintf(w, "; %s failed, %s unknown", humanize.Comma(v.Failed), humanize.Comma(v.Unknown))
		}
		fmt.Fprintln(w)
		for _, text := range v.Failures[min(1, len(v.Failures)):] { // the first one is the command's error
			fmt.Fprintf(a.stderr, "also: %s\n", text)
		}
		if more := v.Failed + v.Unknown - int64(len(v.Failures)); more > 0 && len(v.Failures) > 0 {
			fmt.Fprintf(a.stderr, "and %s more\n", humanize.Comma(more))
		}
	})
	return failed
}
