package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/procs"
)

// builds holds the binaries of this test run, one for each set of build tags.
type builds struct {
	mu    sync.Mutex // held while building
	dir   string
	paths map[string]string
}

var built builds

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sundog-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = builds{dir: dir, paths: map[string]string{}}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// binary builds cmd/sundog with the given build tags, once.
func binary(t *testing.T, tags string) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if path, ok := built.paths[tags]; ok {
		return path
	}
	path := filepath.Join(built.dir, "sundog"+tags)
	cmd := exec.Command("go", "build", "-tags", tags, "-o", path, "../cmd/sundog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "build: %s", out)
	built.paths[tags] = path
	return path
}

// long skips what is too slow for the everyday loop.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SUNDOG_LONG") != "1" {
		t.Skip("takes long: run by `make test`, or with SUNDOG_LONG=1")
	}
}

// seed returns the seed of a random schedule and prints it.
func seed(t *testing.T) int64 {
	t.Helper()
	s := time.Now().UnixNano()
	if v := os.Getenv("SUNDOG_SEED"); v != "" {
		var err error
		s, err = strconv.ParseInt(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("replay with SUNDOG_SEED=%d", s)
	return s
}

// within is a context that bounds one test, far above what it should take.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// startCluster runs n servers until the test ends; on failure their logs are
// printed.
func startCluster(t *testing.T, n int, opts procs.Options) *procs.Cluster {
	t.Helper()
	if opts.Binary == "" {
		opts.Binary = binary(t, "")
	}
	opts.Dir, opts.Nodes = t.TempDir(), n
	c, err := procs.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		if !t.Failed() {
			return
		}
		for _, n := range c.Nodes() {
			if data, err := os.ReadFile(n.LogPath()); err == nil {
				t.Logf("log of %s ends:\n%s", n.Name, data[max(0, len(data)-4000):])
			}
		}
	})
	require.NoError(t, c.Start(within(t, time.Minute)))
	return c
}

// dial connects a client that is closed when the test ends.
func dial(t *testing.T, addrs []string, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(within(t, time.Minute), addrs, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// strongPool creates a strong pool of 3 replicas and opens it.
func strongPool(t *testing.T, c *client.Client, name string) *client.Pool {
	t.Helper()
	ctx := within(t, time.Minute)
	_, err := c.CreatePool(ctx, name, sundog.PoolSpec{Consistency: sundog.Strong}.WithDefaults())
	require.NoError(t, err)
	pool, err := c.Pool(ctx, name)
	require.NoError(t, err)
	return pool
}

// result is what a run of the command line left.
type result struct {
	stdout, stderr string
	code           int
}

// sundogCmd runs the command line against the given addresses.
func sundogCmd(t *testing.T, addrs []string, stdin string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(within(t, 2*time.Minute), binary(t, ""), args...)
	cmd.Env = append(os.Environ(), "SUNDOG_ADDR="+strings.Join(addrs, ","))
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := result{stdout.String(), stderr.String(), 0}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	return r
}

// requireEqualReplicas waits until all servers are ready and compares the pool's
// replicas.
func requireEqualReplicas(t *testing.T, cluster *procs.Cluster, c *client.Client, pool string) client.CheckReport {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	for _, n := range cluster.Nodes() {
		require.NoError(t, n.Ready(ctx))
	}
	report, err := c.Check(ctx, pool)
	require.NoError(t, err)
	require.True(t, report.Equal, "replicas differ: %v", report.Details)
	return report
}
