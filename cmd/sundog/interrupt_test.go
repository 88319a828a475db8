//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// started runs a command line whose stdin is a pipe and whose signals the test
// sends.
type started struct {
	t        *testing.T
	in       *io.PipeWriter
	signals  chan os.Signal
	code     chan int
	out, err bytes.Buffer // to be read once it has ended
}

func (w *world) start(args ...string) *started {
	in, feed := io.Pipe()
	s := &started{t: w.t, in: feed, signals: make(chan os.Signal, 2), code: make(chan int, 1)}
	w.t.Cleanup(func() { feed.Close() })
	a := &app{
		stdin: in, stdout: &output{w: &s.out}, stderr: &s.err,
		environ: func() []string { return w.environ }, signals: s.signals,
	}
	go func() { s.code <- a.run(w.t.Context(), args) }()
	return s
}

func (s *started) ends() result {
	s.t.Helper()
	select {
	case code := <-s.code:
		return result{code, s.out.String(), s.err.String()}
	case <-time.After(30 * time.Second):
		s.t.Fatal("the command did not end")
		return result{}
	}
}

// A command that waits for stdin or a device ends at the first signal, and by
// --timeout.
func TestInterruptedWhileReading(t *testing.T) {
	w, _ := single(t)
	w.ok("pool", "create", "p", "--consistency", "strong", "--replicas", "1")
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, args := range [][]string{{"put", "p", "k", "-"}, {"put", "p", "k", "-f", pipe}, {"load", "p", "-"}, {"load", "p", pipe}} {
		s := w.start(args...)
		time.AfterFunc(200*time.Millisecond, func() { s.signals <- os.Interrupt })
		r := s.ends()
		require.Equal(t, exitInterrupted, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.err, "interrupted")
		s.in.Close()

		s = w.start(append(args, "--json")...)
		s.signals <- syscall.SIGTERM
		r = s.ends()
		require.Equal(t, exitInterrupted, r.code)
		require.Equal(t, 1, strings.Count(r.out, "\n"), r.out)
		var line struct {
			Error errorJSON `json:"error"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &line), r.out)
		require.Equal(t, "closed", line.Error.Kind)
		require.Contains(t, line.Error.Message, "interrupted")
		require.Empty(t, r.err)
		s.in.Close()

		s = w.start(append(args, "--timeout", "300ms")...)
		r = s.ends()
		require.Equal(t, 4, r.code, "%v: %s", args, r.err)
		s.in.Close()
	}
	require.Contains(t, w.fails(7, "put", "p", "k", "-f", "/dev/zero"), "more than 1048576 bytes")
	w.fails(3, "get", "p", "k")
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // whoever still opens the pipe goes on, to its end
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// A load that is interrupted says what is stored and that it may run again.
func TestInterruptedLoad(t *testing.T) {
	w, _ := single(t)
	w.ok("pool", "create", "p", "--consistency", "strong", "--replicas", "1")
	s := w.start("load", "p", "-")
	_, err := s.in.Write([]byte(lines(6000)))
	require.NoError(t, err)
	s.signals <- os.Interrupt
	r := s.ends()
	require.Equal(t, exitInterrupted, r.code)
	require.Contains(t, r.err, "interrupted: ")
	require.Contains(t, r.err, "safe to run it again")
	require.Contains(t, r.out, "loaded ")
}

// What cannot be written ends a command whatever it hangs in.
func TestInterruptedWhileWriting(t *testing.T) {
	signals := make(chan os.Signal, 2)
	_, hangs := io.Pipe() // nobody reads
	t.Cleanup(func() { hangs.Close() })
	var stderr bytes.Buffer
	a := &app{stdout: &output{w: hangs}, stderr: &stderr, signals: signals, environ: func() []string { return nil }}
	signals <- os.Interrupt
	signals <- os.Interrupt
	err := a.untilInterrupted(t.Context(), func(context.Context) error {
		_, err := a.stdout.Write([]byte("x"))
		return err
	})
	require.Equal(t, exitInterrupted, exitCode(err))
	a.report(a.root(), err)
	require.Contains(t, stderr.String(), "interrupted")

	// A change that was under way is told as such, under the same code.
	a.interrupted.Store(true)
	err = a.endedBy(sundog.Errorf(sundog.Unknown, "sent"))
	require.Equal(t, exitInterrupted, exitCode(err))
	require.ErrorIs(t, err, sundog.Unknown)
	require.NoError(t, a.endedBy(nil), "what was done before the signal is done")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A result that does not get out is no success.
func TestOutputErrors(t *testing.T) {
	w, _ := single(t)
	w.ok("pool", "create", "p", "--consistency", "strong", "--replicas", "1")
	w.ok("put", "p", "k", "v")
	for _, line := range []string{
		"put p k v", "get p k", "incr p n", "scan p", "load p " + write(t, "f.tsv", "a\tb\n"), "del p k", "nodes", "partitions",
		"check p", "pool list", "pool describe p", "doctor", "version", "--help", "completion bash", "help", "pool --help", "nonsense",
	} {
		for _, json := range []bool{false, true} {
			var stderr bytes.Buffer
			a := &app{
				stdin: strings.NewReader(""), stdout: &output{w: full{}}, stderr: &stderr,
				environ: func() []string { return w.environ }, signals: make(chan os.Signal),
			}
			args := strings.Fields(line)
			if json {
				args = append(args, "--json")
			}
			code := a.run(t.Context(), args)
			if line == "nonsense" {
				require.Equal(t, 2, code)
				continue
			}
			require.Equal(t, 1, code, "%s json %t: %s", line, json, stderr.String())
			require.Contains(t, stderr.String(), "no space left on device", line)
			w.ok("put", "p", "k", "v")
		}
	}
}
