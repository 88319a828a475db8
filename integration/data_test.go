package integration

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/procs"
)

// dataFile is the whole package index where it lies beside the checkout (or where
// SUNDOG_DATA says), else the demo's cut of it.
func dataFile(t *testing.T) (path string, records int) {
	t.Helper()
	for _, path := range []string{os.Getenv("SUNDOG_DATA"), "../../shared/data/debian-packages.tsv.gz"} {
		if _, err := os.Stat(path); err == nil {
			return path, 63_436
		}
	}
	t.Log("the whole data set is not here: using the 12,000 records of the demo")
	return "../cmd/sundog/demo/packages.tsv.gz", 12_000
}

// readRecords reads key TAB value lines.
func readRecords(t *testing.T, path string) []client.Pair {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	var pairs []client.Pair
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, ok := bytes.Cut(bytes.Clone(lines.Bytes()), []byte{'\t'})
		require.True(t, ok)
		pairs = append(pairs, client.Pair{Key: key, Value: value})
	}
	require.NoError(t, lines.Err())
	return pairs
}

// requireReadsBack reads every pair and compares the bytes.
func requireReadsBack(t *testing.T, pool *client.Pool, pairs []client.Pair) {
	t.Helper()
	const batch = 500
	ctx := within(t, 3*time.Minute)
	for i := 0; i < len(pairs); i += batch {
		part := pairs[i:min(i+batch, len(pairs))]
		keys := make([][]byte, len(part))
		for j, p := range part {
			keys[j] = p.Key
		}
		for j, r := range pool.MultiGet(ctx, keys) {
			require.NoError(t, r.Err, "%s", keys[j])
			require.Equal(t, part[j].Value, r.Item.Value, "%s", keys[j])
		}
	}
}

// appender puts fresh keys one after the other and keeps those acknowledged.
type appender struct {
	pool  *client.Pool
	mu    sync.Mutex // guards acked
	acked []client.Pair
}

func (a *appender) run(ctx context.Context, id int) {
	for n := 0; ctx.Err() == nil; n++ {
		p := client.Pair{Key: fmt.Appendf(nil, "append/%d/%d", id, n), Value: fmt.Appendf(nil, "value %d of %d", n, id)}
		if _, err := a.pool.Put(ctx, p.Key, p.Value); err == nil {
			a.mu.Lock()
			a.acked = append(a.acked, p)
			a.mu.Unlock()
		}
	}
}

func (a *appender) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.acked)
}

// TestRealData: the command line loads the whole index into three processes, each
// record reads back; all three are killed with -9 while writers note what is
// acknowledged, and restarted on new ports: nothing is missing, replicas are equal.
func TestRealData(t *testing.T) {
	long(t)
	path, count := dataFile(t)
	cluster := startCluster(t, 3, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})

	r := sundogCmd(t, cluster.Listen(), "", "pool", "create", "pkgs", "--consistency", "strong")
	require.Zero(t, r.code, r.stderr)
	r = sundogCmd(t, cluster.Listen(), "", "load", "pkgs", path, "--json", "--timeout", "90s")
	require.Zero(t, r.code, r.stderr)
	var loaded map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &loaded), r.stdout)
	t.Logf("load: %s", r.stdout)

	pool, err := c.Pool(t.Context(), "pkgs")
	require.NoError(t, err)
	pairs := readRecords(t, path)
	require.Len(t, pairs, count)
	requireReadsBack(t, pool, pairs)

	// A fresh client finds it all (CASE 37).
	info, err := dial(t, cluster.Listen()[2:], client.Options{}).DescribePool(t.Context(), "pkgs")
	require.NoError(t, err)
	require.EqualValues(t, count, info.Keys)

	acked := killAll(t, cluster, pool)
	c2 := dial(t, cluster.Listen(), client.Options{})
	pool2, err := c2.Pool(within(t, time.Minute), "pkgs")
	require.NoError(t, err)
	requireReadsBack(t, pool2, append(acked, pairs...))
	report := requireEqualReplicas(t, cluster, c2, "pkgs")
	require.GreaterOrEqual(t, report.Keys, int64(count+len(acked)))
}

// killAll kills every server at once while writers write, starts all again on new
// ports, and returns what was acknowledged.
func killAll(t *testing.T, cluster *procs.Cluster, pool *client.Pool) []client.Pair {
	t.Helper()
	a := &appender{pool: pool}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() { a.run(ctx, id) })
	}
	require.Eventually(t, func() bool { return a.count() > 500 }, time.Minute, 10*time.Millisecond)
	var kills sync.WaitGroup
	for _, n := range cluster.Nodes() {
		kills.Go(n.Kill)
	}
	kills.Wait()
	stop()
	wg.Wait()
	t.Logf("%d acknowledged before all were killed", len(a.acked))
	require.NoError(t, cluster.Start(within(t, time.Minute)))
	for _, n := range cluster.Nodes() {
		require.NoError(t, n.Ready(within(t, time.Minute)))
	}
	return a.acked
}

// TestKillAllAgain: several rounds of the same on a small pool.
func TestKillAllAgain(t *testing.T) {
	long(t)
	cluster := startCluster(t, 3, procs.Options{})
	name := strongPool(t, dial(t, cluster.Listen(), client.Options{}), "again").Name()
	var all []client.Pair
	for range 3 {
		pool, err := dial(t, cluster.Listen(), client.Options{}).Pool(within(t, time.Minute), name)
		require.NoError(t, err)
		all = append(all, killAll(t, cluster, pool)...)
	}
	c := dial(t, cluster.Listen(), client.Options{})
	pool, err := c.Pool(within(t, time.Minute), name)
	require.NoError(t, err)
	for _, p := range all { // a later round overwrites with the same value
		item, err := pool.Get(within(t, time.Minute), p.Key)
		require.NoError(t, err, "%s", p.Key)
		require.Equal(t, p.Value, item.Value)
	}
	requireEqualReplicas(t, cluster, c, name)
}

// TestKillOne is the quick form for every day: a leader dies under load.
func TestKillOne(t *testing.T) {
	cluster := startCluster(t, 3, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})
	pool := strongPool(t, c, "quick")
	a := &appender{pool: pool}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Go(func() { a.run(ctx, id) })
	}
	require.Eventually(t, func() bool { return a.count() > 200 }, time.Minute, 10*time.Millisecond)
	victim := cluster.Nodes()[1]
	victim.Kill()
	before := a.count()
	require.Eventually(t, func() bool { return a.count() > before+200 }, time.Minute, 10*time.Millisecond)
	stop()
	wg.Wait()
	requireReadsBack(t, pool, a.acked)
	require.NoError(t, victim.Start(within(t, time.Minute)))
	requireEqualReplicas(t, cluster, c, pool.Name())
	_, err := pool.Get(t.Context(), []byte("append/none"))
	require.True(t, errors.Is(err, sundog.NotFound), "%v", err)
}
