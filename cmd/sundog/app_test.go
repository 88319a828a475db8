package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// result is what one run of the program left behind.
type result struct {
	code     int
	out, err string
}

// world runs command lines against one cluster (or none).
type world struct {
	t       *testing.T
	environ []string
	stdin   string
}

func (w *world) run(args ...string) result {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{
		stdin: strings.NewReader(w.stdin), stdout: &output{w: &stdout}, stderr: &stderr,
		environ: func() []string { return w.environ }, signals: make(chan os.Signal),
	}
	code := a.run(w.t.Context(), args)
	return result{code, stdout.String(), stderr.String()}
}

// line runs with --json and decodes the one line into v.
func (w *world) line(code int, v any, args ...string) {
	w.t.Helper()
	r := w.run(append([]string{"--json"}, args...)...)
	require.Equal(w.t, code, r.code, "%v: %s%s", args, r.out, r.err)
	require.Equal(w.t, 1, strings.Count(r.out, "\n"), "exactly one line: %q", r.out)
	require.True(w.t, strings.HasSuffix(r.out, "\n"))
	require.NoError(w.t, json.Unmarshal([]byte(r.out), v), r.out)
	require.Empty(w.t, r.err)
}

func deadAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestExitCodes(t *testing.T) {
	want := map[sundog.Kind]int{
		sundog.Invalid: 2, sundog.NotFound: 3, sundog.Exists: 6, sundog.Conflict: 6, sundog.TooLarge: 7,
		sundog.NoSpace: 7, sundog.Locked: 6, sundog.Denied: 8, sundog.NotOwner: 4, sundog.Stale: 4,
		sundog.Unavailable: 4, sundog.Timeout: 4, sundog.Unknown: 5, sundog.Corrupt: 1, sundog.Closed: 1, sundog.Internal: 1,
	}
	for kind := sundog.Invalid; kind <= sundog.Internal; kind++ {
		code, ok := want[kind]
		require.True(t, ok, kind)
		require.Equal(t, code, exitCode(sundog.Errorf(kind, "x")), kind)
		require.Equal(t, code, exitCode(fmt.Errorf("around: %w", sundog.Errorf(kind, "x"))), kind)
	}
	require.Equal(t, 0, exitCode(nil))
	require.Equal(t, 1, exitCode(errors.New("any")))
}

func TestUsageErrors(t *testing.T) {
	w := &world{t: t, environ: []string{"SUNDOG_ADDR=" + deadAddr(t)}}
	for _, c := range []struct {
		args string
		want string
	}{
		{"nodez", `unknown command "nodez", did you mean nodes?`},
		{"drain n", "drain: not in this release"},
		{"token list", "token: not in this release"},
		{"bench --help", "bench: not in this release"},
		{"help snapshot", "snapshot: not in this release"},
		{"nosuch --help", `unknown command "nosuch"`},
		{"pool nosuch --help", `unknown command "nosuch"`},
		{"help nosuch", `unknown command "nosuch"`},
		{"help pool nosuch", `unknown command "nosuch"`},
		{"completion nosuch", `unknown command "nosuch"`},
		{"incr p k -1", "incr POOL KEY -- -1"},
		{"pool", "create, delete, describe, list, set"},
		{"pool crate x", "did you mean create?"},
		{"pool create", "NAME is missing"},
		{"pool create a b", `unexpected argument "b"`},
		{"pool create a", "--consistency is missing"},
		{"pool create a --consistency eventual", "not in this release"},
		{"pool create a --consistency weak", "strong, eventual"},
		{"pool create a --consistency strong --durability memory", "always synced"},
		{"pool create a --consistency strong --acks quorum", "always waits for a majority"},
		{"pool create a --consistency strong --replicas 0", "--replicas 0"},
		{"pool create a --consistency strong --max-value 2MiB", "max value"},
		{"pool create a --consistency strong --quota much", "--quota"},
		{"pool set a", "nothing to change"},
		{"pool set a --consistency eventual", "not in this release"},
		{"get p", "KEY is missing"},
		{"get", "POOL is missing; see: sundog get --help"},
		{"get p k --bad", "unknown flag: --bad"},
		{"put p k", "no value"},
		{"put p k v -f x", "two values"},
		{"put p k v --ttl 0s", "--ttl"},
		{"put p k v --ttl soon", "--ttl"},
		{"put p k v --if-version 12", "--if-version"},
		{"put p k v --if-absent --if-version 0000000000000001", "exclude"},
		{"get p k --timeout -1s", "--timeout"},
		{"get p k --timeout 0", "--timeout"},
		{"put p k v --timeout 0s", "--timeout"},
		{"get p k --addr host:99999", "99999"},
		{"start", "--data"},
		{"start --data d --auth", "not in this release"},
		{"start --data d --fabric shm", "not in this release"},
		{"start --data d --partitions 33", "power of two"},
		{"start extra", `unexpected argument "extra"`},
		{"doctor --data /no/such/directory", "/no/such/directory"},
	} {
		t.Run(c.args, func(t *testing.T) {
			w := &world{t: t, environ: w.environ}
			r := w.run(strings.Fields(c.args)...)
			require.Equal(t, 2, r.code, r.err)
			require.Contains(t, r.err, c.want)
			require.Empty(t, r.out)
			var line struct {
				Error errorJSON `json:"error"`
			}
			w.line(2, &line, strings.Fields(c.args)...)
			require.Equal(t, "invalid", line.Error.Kind)
			require.Contains(t, line.Error.Message, c.want)
		})
	}
	r := w.run("put", "p", "", "v")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "empty key")
	require.Equal(t, 2, (&world{t: t, environ: []string{"SUNDOG_LOG=loud"}}).run("nodes").code)
}

func TestNobodyThere(t *testing.T) {
	addr := deadAddr(t)
	w := &world{t: t, environ: []string{"SUNDOG_ADDR=" + addr}}
	r := w.run("get", "p", "k", "--timeout", "150ms")
	require.Equal(t, 4, r.code)
	require.Contains(t, r.err, addr)
	require.Contains(t, r.err, "--addr")
	var line struct {
		Error errorJSON `json:"error"`
	}
	w.line(4, &line, "nodes", "--timeout", "150ms")
	require.Equal(t, "unavailable", line.Error.Kind)
	require.Equal(t, 2, w.run("nodes", "--addr", "nowhere").code)
}

func TestLocalCommands(t *testing.T) {
	w := &world{t: t}
	require.Contains(t, w.run().out, "partitions")
	require.Contains(t, w.run("completion", "bash").out, "sundog")
	var v versionJSON
	w.line(0, &v, "version")
	require.Equal(t, release, v.Version)
	require.Contains(t, w.run("version").out, "sundog "+release)
	require.Equal(t, w.run("version").out, w.run("--version").out)
	w.line(0, &v, "--version")
	require.Contains(t, w.run("help", "pool", "create").out, "--quota")
	require.Contains(t, w.run("help").out, "Cluster:")

	var d doctorJSON
	w.line(0, &d, "doctor", "--data", t.TempDir())
	require.Len(t, d.Fabrics, 3)
	require.Equal(t, "tcp", d.Fabrics[0].Name)
	require.True(t, d.Fabrics[0].Available)
	require.Contains(t, d.Fabrics[1].Reason, "not in this release")
	names := map[string]bool{}
	for _, c := range d.Checks {
		names[c.Name] = true
	}
	require.True(t, names["cpus"] && names["fsync"], "%v", names)
	require.Contains(t, w.run("doctor", "--data", t.TempDir()).out, "FABRIC")
}
