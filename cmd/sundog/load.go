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
	Pool    string     `json:"pool"`
	Lines   int64      `json:"lines"`
	Loaded  int64      `json:"loaded"`  // acknowledged
	Failed  int64      `json:"failed"`  // surely not stored
	Unknown int64      `json:"unknown"` // sent and not answered, and the key has another value
	Bytes   int64      `json:"bytes"`   // of keys and values acknowledged
	Retried int64      `json:"retried"` // sent, or read, again after a failure that was none of the data's
	Seconds float64    `json:"seconds"`
	Error   *errorJSON `json:"error,omitempty"` // the first failure
}

func (a *app) loadCommand() *cobra.Command {
	var lanes int
	cmd := &cobra.Command{
		Use:   "load POOL FILE",
		Short: "Store every line of a file: key TAB value",
		Long: `Store every line of a file: key TAB value. FILE may be compressed with gzip, and
- is stdin. A key that comes twice keeps the value of its later line. What surely
was not stored is tried again while the cluster is away, for as long as a minute
without progress. What may have been stored is read: it counts as loaded where it
is there, is stored where the key does not exist, and counts as unknown where the
key has another value, which may be newer. --timeout is for each batch.`,
		Example: "  sundog load pkgs packages.tsv.gz",
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
		in, size, err := a.open(args[1])
		if err != nil {
			return err
		}
		defer in.Close()
		bar := a.progress(size)
		start := time.Now()
		l := &loader{pool: p, lanes: lanes, patience: loadPatience, pause: retryPause}
		failed := l.load(ctx, io.TeeReader(in, bar), args[1])
		_ = bar.Clear()
		return a.loaded(args[0], l, time.Since(start), failed)
	})
	cmd.Flags().IntVar(&lanes, "in-flight", 8, "batches on their way at the same time")
	return cmd
}

// open opens a file or, for -, stdin. size is 0 where it is not known.
func (a *app) open(name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(a.stdin), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, sundog.Errorf(sundog.Invalid, "FILE: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, nil
}

// progress shows how much of the file is read, on a terminal only.
func (a *app) progress(size int64) *progressbar.ProgressBar {
	if size == 0 {
		size = -1 // a spinner
	}
	f, ok := a.stderr.(*os.File)
	if a.json || !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.DefaultBytesSilent(size)
	}
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(f), progressbar.OptionSetDescription("loading"),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
}

// loaded reports the counts and makes the command's error.
func (a *app) loaded(pool string, l *loader, took time.Duration, failed error) error {
	v := loadJSON{
		Pool: pool, Lines: l.lines, Loaded: l.counts.loaded, Failed: l.counts.failed, Unknown: l.counts.unknown,
		Bytes: l.counts.bytes, Retried: l.counts.retried, Seconds: took.Round(time.Millisecond).Seconds(),
	}
	if first := l.counts.first; first != nil && (failed == nil || errors.Is(failed, sundog.Closed)) {
		failed = first
	}
	if v.Unknown > 0 && !errors.Is(failed, sundog.Unknown) {
		failed = sundog.Errorf(sundog.Unknown, "%d of %d lines were sent and not answered; first of all: %v", v.Unknown, v.Lines, failed)
	}
	if failed != nil {
		e := errorOf(failed)
		v.Error = &e
	}
	a.show(v, func(w io.Writer) {
		rate := float64(v.Loaded) / max(took.Seconds(), 1e-9)
		fmt.Fprintf(w, "loaded %s keys, %s, in %.1f s (%s keys/s)", humanize.Comma(v.Loaded), bytesOf(v.Bytes), v.Seconds, humanize.Comma(int64(rate)))
		if v.Failed+v.Unknown > 0 {
			fmt.Fprintf(w, "; %s failed, %s unknown", humanize.Comma(v.Failed), humanize.Comma(v.Unknown))
		}
		fmt.Fprintln(w)
	})
	return failed
}
