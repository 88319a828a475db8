package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sundog-kv/sundog"
)

// server is start, running inside the test.
type server struct {
	signals  chan os.Signal
	ended    chan int
	out, err *bytes.Buffer // to be read once it has ended
}

// launch runs start with the arguments and ports of the kernel's choice, and
// returns where it listens.
func launch(t *testing.T, environ []string, args ...string) (*server, map[string]string) {
	t.Helper()
	ports := filepath.Join(t.TempDir(), "ports.json")
	s := &server{signals: make(chan os.Signal, 2), ended: make(chan int, 1), out: new(bytes.Buffer), err: new(bytes.Buffer)}
	a := &app{
		stdin: strings.NewReader(""), stdout: &output{w: s.out}, stderr: s.err,
		environ: func() []string { return environ }, signals: s.signals,
	}
	args = append([]string{"start", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ports-file", ports}, args...)
	go func() { s.ended <- a.run(context.Background(), args) }()
	var addrs map[string]string
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(ports)
		return err == nil && json.Unmarshal(b, &addrs) == nil
	}, 60*time.Second, 10*time.Millisecond)
	return s, addrs
}

// end sends SIGTERM and returns the exit code.
func (s *server) end(t *testing.T) int {
	t.Helper()
	s.signals <- syscall.SIGTERM
	select {
	case code := <-s.ended:
		return code
	case <-time.After(60 * time.Second):
		t.Fatal("start did not end")
		return -1
	}
}

// single starts a cluster of one node and a world that talks to it.
func single(t *testing.T) (*world, *server) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s, addrs := launch(t, []string{"SUNDOG_LOG=off", "SUNDOG_BOOTSTRAP_EXPECT=1"}, "--data", filepath.Join(t.TempDir(), "data"), "--memory", "64MiB")
	t.Cleanup(func() { require.Equal(t, 0, s.end(t)) })
	return &world{t: t, environ: []string{"SUNDOG_LOG=off", "SUNDOG_ADDR=" + deadAddr(t) + "," + addrs["listen"]}}, s
}

// ok runs a command that must succeed and returns its output.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	r := w.run(args...)
	require.Equal(w.t, 0, r.code, "%v: %s", args, r.err)
	return r.out
}

// fails runs a command that must end with the code and returns what it said.
func (w *world) fails(code int, args ...string) string {
	w.t.Helper()
	r := w.run(args...)
	require.Equal(w.t, code, r.code, "%v: %s%s", args, r.out, r.err)
	require.Empty(w.t, r.out)
	return r.err
}

func TestDataCommands(t *testing.T) {
	w, _ := single(t)
	w.ok("pool", "create", "p", "--consistency", "strong", "--replicas", "1", "--max-value", "1000")
	require.Contains(t, w.fails(6, "pool", "create", "p", "--consistency", "strong", "--max-value", "999"), "max value 1000 B where 999 B was asked for")
	require.Contains(t, w.fails(6, "pool", "create", "p", "--consistency", "strong", "--max-value", "1000"), "with this same spec")

	v1 := strings.TrimSpace(w.ok("put", "p", "k", "hello"))
	require.Regexp(t, "^[0-9a-f]{16}$", v1)
	require.Equal(t, "hello", w.ok("get", "p", "k"), "the raw value and nothing else")
	var got map[string]any
	w.line(0, &got, "get", "p", "k")
	require.Regexp(t, "^[0-9a-f]{16}$", got["node"])
	delete(got, "node")
	require.Equal(t, map[string]any{"key": "k", "value": "aGVsbG8=", "version": v1, "via": "rpc"}, got)

	require.Contains(t, w.fails(3, "get", "p", "absent"), `key "absent" in pool "p"`)
	require.Contains(t, w.fails(3, "get", "nopool", "k"), `no pool "nopool"`)
	require.Contains(t, w.fails(3, "del", "p", "absent"), `"absent"`)
	w.fails(6, "put", "p", "k", "x", "--if-absent")
	w.fails(6, "put", "p", "k", "x", "--if-version", "0000000000000001")
	w.ok("put", "p", "k", "hello again", "--if-version", v1)
	long := w.fails(7, "put", "p", "long", strings.Repeat("x", 1001))
	require.Contains(t, long, "1001")
	require.Contains(t, long, "1000")

	w.stdin = "from\x00stdin\n"
	w.ok("put", "p", "stdin", "-")
	require.Equal(t, w.stdin, w.ok("get", "p", "stdin"))
	file := write(t, "value", "")
	w.ok("put", "p", "empty", "-f", file)
	require.Empty(t, w.ok("get", "p", "empty"))
	w.line(0, &got, "get", "p", "empty")
	require.Equal(t, "", got["value"])
	w.fails(2, "put", "p", "k", "-f", "/no/such/file")
	w.fails(2, "put", "p", strings.Repeat("k", sundog.MaxKey+1), "v")

	w.ok("put", "p", "short", "x", "--ttl", "1h")
	w.line(0, &got, "get", "p", "short")
	deadline, err := time.Parse(time.RFC3339Nano, got["deadline"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), deadline, 10*time.Minute)

	require.Equal(t, "1\n", w.ok("incr", "p", "n"))
	require.Equal(t, "-4\n", w.ok("incr", "p", "n", "--", "-5"))
	w.line(0, &got, "incr", "p", "n", "10")
	require.Equal(t, float64(6), got["value"])
	require.Contains(t, w.fails(2, "incr", "p", "k"), `key "k" in pool "p"`)
	require.Contains(t, w.fails(6, "put", "p", "k", "x", "--if-version", "0000000000000001"), `key "k" in pool "p"`)

	// A key that is not text.
	w.ok("put", "p", "\xff\xfe", "bytes")
	var item map[string]any
	w.line(0, &item, "get", "p", "\xff\xfe")
	require.Equal(t, "//4=", item["key_base64"])

	var scan struct {
		Items []itemJSON `json:"items"`
		Count int        `json:"count"`
	}
	w.line(0, &scan, "scan", "p", "--prefix", "s")
	require.Equal(t, 2, scan.Count)
	require.Len(t, scan.Items, 2)
	w.fails(3, "scan", "nopool")
	var del map[string]any
	w.line(0, &del, "del", "p", "k")
	require.Equal(t, "k", del["key"])
	require.Contains(t, del, "version")
}

func TestLoadAndScan(t *testing.T) {
	w, _ := single(t)
	w.ok("pool", "create", "p", "--consistency", "strong", "--replicas", "1")
	path := write(t, "f.tsv", lines(3000))
	var sum loadJSON
	w.line(0, &sum, "load", "p", path)
	require.Equal(t, [4]int64{3000, 3000, 0, 0}, [4]int64{sum.Lines, sum.Loaded, sum.Failed, sum.Unknown})
	require.Contains(t, w.ok("load", "p", path, "--in-flight", "1"), "loaded 3,000 keys")

	seen := map[string]bool{}
	for line := range strings.Lines(w.ok("scan", "p", "--keys-only")) {
		seen[strings.TrimSpace(line)] = true
	}
	require.Len(t, seen, 3000)
	require.Contains(t, w.ok("scan", "p", "--prefix", "key-2999"), `key-2999`+"\t"+`"value\twith tab 2999\r"`)
	require.Equal(t, 5, strings.Count(w.ok("scan", "p", "--limit", "5"), "\n"))

	r := w.run("load", "p", write(t, "bad.tsv", "a\t1\nno tab\n"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.out, "loaded 1 keys")
	require.Contains(t, r.err, "line 2")
	w.line(2, &sum, "load", "p", write(t, "bad.tsv", "a\t1\nno tab\n"))
	require.Contains(t, sum.Error.Message, "line 2")
	w.fails(2, "load", "p", "/no/such/file")
	w.fails(3, "load", "nopool", path)

	var check checkJSON
	w.line(0, &check, "check", "p")
	require.Equal(t, checkJSON{Partitions: 32, Equal: true, Keys: 3001}, check)
	var pool map[string]any
	w.line(0, &pool, "pool", "describe", "p")
	require.Equal(t, float64(3001), pool["keys"])
	for _, field := range []string{"name", "consistency", "replicas", "quota", "used", "keys"} {
		require.Contains(t, pool, field)
	}
}

func TestClusterCommands(t *testing.T) {
	w, _ := single(t)
	var nodes []map[string]any
	w.line(0, &nodes, "nodes")
	require.Len(t, nodes, 1)
	for _, field := range []string{"id", "listen", "http", "state", "zone", "replicas", "leaders", "safe_to_stop"} {
		require.Contains(t, nodes[0], field)
	}
	require.Contains(t, w.ok("nodes"), "SAFE TO STOP")
	var pools []map[string]any
	w.line(0, &pools, "pool", "list")
	require.Empty(t, pools)
	require.NotNil(t, pools, "an empty list is []")

	w.line(0, &nodes[0], "pool", "create", "p", "--consistency", "strong", "--replicas", "1", "--quota", "1MiB")
	require.Equal(t, "p", nodes[0]["name"])
	w.line(0, &pools, "pool", "list")
	require.Equal(t, float64(1<<20), pools[0]["quota"])
	var parts []map[string]any
	w.line(0, &parts, "partitions")
	require.Len(t, parts, 32)
	for _, field := range []string{"partition", "leader", "replicas", "term", "applied"} {
		require.Contains(t, parts[31], field)
	}
	require.Equal(t, 33, strings.Count(w.ok("partitions"), "\n"))

	r := w.run("pool", "set", "p", "--quota", "2MiB")
	require.Equal(t, 0, r.code)
	require.Contains(t, r.err, "each may hold 64 KiB, less than one value of 1.0 MiB")
	require.Contains(t, w.fails(2, "pool", "set", "p", "--quota", "31"), "32 partitions")
	require.Contains(t, w.fails(7, "put", "p", "k", strings.Repeat("x", 70000)), `pool "p" holds 0`)
	var full struct {
		Error map[string]any `json:"error"`
	}
	w.line(7, &full, "put", "p", "k", strings.Repeat("x", 70000))
	require.Equal(t, float64(0), full.Error["used"])
	require.Positive(t, full.Error["limit"]) // a partition may not have heard of the change yet
	require.Contains(t, w.ok("pool", "set", "p", "--quota", "0"), "quota none")
	require.Contains(t, w.ok("pool", "describe", "p"), "32 of 32 ready")
	require.Contains(t, w.ok("pool", "delete", "p"), "deleted")
	w.fails(3, "pool", "describe", "p")
	w.fails(3, "pool", "delete", "p")
	w.fails(3, "check", "p")
}

// Every command that docs/cli.md shows is run here.
func TestCommandsOfTheManual(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	require.NoError(t, err)
	w, _ := single(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("packages.tsv", []byte("liba\t1\nlibb\t2\nc\t3\n"), 0o600))
	ran := 0
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ sundog ")
		if !ok {
			continue
		}
		ran++
		w.ok(strings.Fields(command)...)
	}
	require.Greater(t, ran, 20)
}

func TestStart(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	data := filepath.Join(t.TempDir(), "data")
	s, addrs := launch(t, []string{"SUNDOG_LOG=off"}, "--data", data, "--bootstrap-expect", "1", "--json")
	for _, name := range []string{"listen", "gossip", "http"} {
		require.Regexp(t, `^127\.0\.0\.1:[1-9]\d*$`, addrs[name])
	}
	// The directory is in use, and so is the port.
	w := &world{t: t, environ: []string{"SUNDOG_LOG=off"}}
	require.Contains(t, w.fails(6, "start", "--data", data, "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0"), "in use")
	require.Contains(t, w.fails(6, "start", "--data", filepath.Join(t.TempDir(), "other"), "--listen", addrs["listen"], "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0"), addrs["listen"])

	require.Equal(t, 0, s.end(t))
	var line startedJSON
	require.NoError(t, json.Unmarshal(s.out.Bytes(), &line))
	require.Equal(t, addrs["listen"], line.Listen)
	require.Equal(t, 1, strings.Count(s.out.String(), "\n"))
	require.Empty(t, s.err.String(), "SUNDOG_LOG=off prints nothing")

	// The same directory starts again, and talks when it may.
	s, _ = launch(t, []string{"SUNDOG_LOG=debug"}, "--data", data)
	require.Equal(t, 0, s.end(t))
	require.Contains(t, s.err.String(), "level=INFO")
	require.Contains(t, s.out.String(), fmt.Sprintf("node %s", line.ID))
}

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		signals := make(chan os.Signal, 4)
		serve := func(ctx context.Context) error { <-ctx.Done(); return nil }
		signals <- os.Interrupt
		require.NoError(t, untilSignalled(t.Context(), signals, quiet, serve))

		// One that hangs while it closes is left at the second signal, for which an
		// echo of the first is not taken.
		hang := make(chan struct{})
		slow := func(context.Context) error { <-hang; return nil }
		signals <- os.Interrupt
		signals <- os.Interrupt
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { signals <- syscall.SIGTERM })
		err := untilSignalled(t.Context(), signals, quiet, slow)
		require.ErrorContains(t, err, "second signal")
		require.Equal(t, 1, exitCode(err))
		require.Equal(t, 3*time.Second, time.Since(start))
		close(hang)

		failed := sundog.Errorf(sundog.Conflict, "port in use")
		require.ErrorIs(t, untilSignalled(t.Context(), signals, quiet, func(context.Context) error { return failed }), sundog.Conflict)
	})
}

func TestProcessorsOfAServer(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	manyProcessors("2", log)()
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	require.Empty(t, text.String())
	require.Contains(t, processors("").Value, "start raises it to 8")
	require.NotContains(t, processors("2").Value, "raises")
	undo := manyProcessors("", log)
	require.Equal(t, 8, runtime.GOMAXPROCS(0))
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	manyProcessors("", log)()
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	undo()
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
}

func TestStrangeVariables(t *testing.T) {
	require.Empty(t, strangers([]string{"SUNDOG_ADDR=x", "SUNDOG_BOOTSTRAP_EXPECT=3", "SUNDOG_LOG=off", "HOME=/"}))
	require.Equal(t, [][2]string{{"SUNDOG_ADR", "SUNDOG_ADDR"}, {"SUNDOG_QQQQQQQQQQQQQ", ""}}, strangers([]string{"SUNDOG_ADR=1", "SUNDOG_QQQQQQQQQQQQQ=2"}))
	w := &world{t: t, environ: []string{"SUNDOG_ADR=x"}}
	r := w.run("nodes", "--addr", deadAddr(t), "--timeout", "100ms")
	require.Equal(t, 1, strings.Count(r.err, "SUNDOG_ADR "))
	require.Equal(t, 4, r.code)
}
