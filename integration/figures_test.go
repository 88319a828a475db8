//go:build linux

package integration

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/integration/procs"
)

const (
	figureRounds = 5
	figureTime   = 2 * time.Second
	figureKeys   = 10_000
	figureValue  = 128
)

// sample is one closed-loop run.
type sample struct {
	perSecond, p50, p99 float64 // operations; microseconds
	cpu                 float64 // server CPU microseconds an operation
}

// TestFigures measures what docs/results.md shows and writes it as Markdown to the
// file named by SUNDOG_FIGURES. Nothing is asserted but that it works.
func TestFigures(t *testing.T) {
	path := os.Getenv("SUNDOG_FIGURES")
	if path == "" {
		t.Skip("measures: run by `make bench`")
	}
	cluster := startCluster(t, 3, procs.Options{})
	pool := strongPool(t, dial(t, cluster.Listen(), client.Options{}), "figures")
	preload(t, pool)
	var out strings.Builder
	machine(t, &out)
	throughput(t, &out, cluster, pool.Name())
	idle(t, &out, cluster)
	overhead(t, &out)
	require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
	t.Log("\n" + out.String())
}

func figureKey(i int) []byte { return fmt.Appendf(nil, "figure-%07d", i) }

func preload(t *testing.T, pool *client.Pool) {
	var pairs []client.Pair
	for i := range figureKeys {
		pairs = append(pairs, client.Pair{Key: figureKey(i), Value: make([]byte, figureValue)})
	}
	for part := range slices.Chunk(pairs, 500) {
		for _, r := range pool.MultiPut(within(t, time.Minute), part) {
			require.NoError(t, r.Err)
		}
	}
}

// machine says where the figures come from, with two bare costs of this machine.
func machine(t *testing.T, out *strings.Builder) {
	commit, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	cpu := "unknown CPU"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(line, "model name\t: "); ok {
				cpu = strings.TrimSpace(name)
				break
			}
		}
	}
	fmt.Fprintf(out, "Commit %s, %s, %s, %d CPUs (%s), servers and clients on the same machine.\n",
		strings.TrimSpace(string(commit)), time.Now().Format("2006-01-02"), runtime.Version(), runtime.NumCPU(), cpu)
	fmt.Fprintf(out, "Bare costs in the same run: fdatasync of 4 KiB appended %s, TCP ping-pong of %d B in Go on loopback %s (medians).\n\n",
		syncCost(t), figureValue, pingPong(t))
}

func median[T cmp.Ordered](xs []T) T {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

func syncCost(t *testing.T) time.Duration {
	f, err := os.Create(filepath.Join(t.TempDir(), "sync"))
	require.NoError(t, err)
	defer f.Close()
	var costs []time.Duration
	for range 200 {
		_, err := f.Write(make([]byte, 4096))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, syscall.Fdatasync(int(f.Fd())))
		costs = append(costs, time.Since(start))
	}
	return median(costs).Round(time.Microsecond)
}

func pingPong(t *testing.T) time.Duration {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, figureValue)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	buf := make([]byte, figureValue)
	var costs []time.Duration
	for range 5000 {
		start := time.Now()
		_, err := conn.Write(buf)
		require.NoError(t, err)
		_, err = conn.Read(buf)
		require.NoError(t, err)
		costs = append(costs, time.Since(start))
	}
	return median(costs).Round(100 * time.Nanosecond)
}

// throughput runs puts and gets at 1, 8 and 64 clients, interleaved, and writes the
// medians of all rounds.
func throughput(t *testing.T, out *strings.Builder, cluster *procs.Cluster, pool string) {
	counts := []int{1, 8, 64}
	samples := map[string][]sample{}
	row := func(op string, n int) string { return fmt.Sprintf("%s, %d clients", op, n) }
	for range figureRounds {
		for _, n := range counts {
			for _, op := range []string{"put", "get"} {
				samples[row(op, n)] = append(samples[row(op, n)], closedLoop(t, cluster, pool, op, n))
			}
		}
	}
	fmt.Fprintf(out, "Strong pool, 3 replicas as 3 processes, synced before the acknowledgement; %d B values, %d keys, uniform; each client has its own connections and one call at a time; medians of %d interleaved rounds of %s.\n\n",
		figureValue, figureKeys, figureRounds, figureTime)
	fmt.Fprintf(out, "| operation | ops/s | p50 µs | p99 µs | server CPU µs an op |\n|---|---|---|---|---|\n")
	for _, op := range []string{"put", "get"} {
		for _, n := range counts {
			var rate, p50, p99, cpu []float64
			for _, s := range samples[row(op, n)] {
				rate, p50, p99, cpu = append(rate, s.perSecond), append(p50, s.p50), append(p99, s.p99), append(cpu, s.cpu)
			}
			fmt.Fprintf(out, "| %s | %.0f | %.0f | %.0f | %.0f |\n", row(op, n), median(rate), median(p50), median(p99), median(cpu))
		}
	}
	out.WriteString("\n")
}

func closedLoop(t *testing.T, cluster *procs.Cluster, pool, op string, clients int) sample {
	pools := make([]*client.Pool, clients)
	for i := range pools {
		c, err := client.Dial(within(t, time.Minute), cluster.Listen(), client.Options{})
		require.NoError(t, err)
		defer c.Close()
		pools[i], err = c.Pool(within(t, time.Minute), pool)
		require.NoError(t, err)
		_, err = pools[i].Get(t.Context(), figureKey(i)) // connect before the clock runs
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), figureTime)
	defer cancel()
	cpu := serverCPU(t, cluster)
	start := time.Now()
	histograms := make([]*hdrhistogram.Histogram, clients)
	var wg sync.WaitGroup
	for i, p := range pools {
		histograms[i] = hdrhistogram.New(1, 60_000_000_000, 3)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			value := make([]byte, figureValue)
			for ctx.Err() == nil {
				key := figureKey(rng.IntN(figureKeys))
				sent := time.Now()
				var err error
				if op == "put" {
					_, err = p.Put(t.Context(), key, value)
				} else {
					_, err = p.Get(t.Context(), key)
				}
				if err != nil {
					t.Errorf("%s: %v", op, err)
					return
				}
				histograms[i].RecordValue(int64(time.Since(sent)))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	cpu = serverCPU(t, cluster) - cpu
	all := histograms[0]
	for _, h := range histograms[1:] {
		all.Merge(h)
	}
	n := float64(all.TotalCount())
	return sample{n / elapsed.Seconds(), float64(all.ValueAtQuantile(50)) / 1e3, float64(all.ValueAtQuantile(99)) / 1e3,
		float64(cpu.Microseconds()) / n}
}

// serverCPU is the CPU time of all servers so far.
func serverCPU(t *testing.T, cluster *procs.Cluster) time.Duration {
	var sum time.Duration
	for _, n := range cluster.Nodes() {
		sum += nodeCPU(t, n)
	}
	return sum
}

// nodeCPU reads user and system time from /proc (proc(5): fields 14 and 15, in
// ticks of 10 ms).
func nodeCPU(t *testing.T, n *procs.Node) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Pid()))
	require.NoError(t, err)
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+2:]))
	var ticks int64
	for _, f := range fields[11:13] {
		v, err := strconv.ParseInt(f, 10, 64)
		require.NoError(t, err)
		ticks += v
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// idle measures what a node costs when nobody asks it anything.
func idle(t *testing.T, out *strings.Builder, cluster *procs.Cluster) {
	const window = 20 * time.Second
	pause(t, 3*time.Second)
	var before []time.Duration
	for _, n := range cluster.Nodes() {
		before = append(before, nodeCPU(t, n))
	}
	pause(t, window)
	var cpu []float64
	var goroutines, sockets, rss []int
	for i, n := range cluster.Nodes() {
		cpu = append(cpu, 100*(nodeCPU(t, n)-before[i]).Seconds()/window.Seconds())
		goroutines = append(goroutines, int(metric(t, n, "go_goroutines")))
		sockets = append(sockets, socketCount(t, n))
		rss = append(rss, int(metric(t, n, "process_resident_memory_bytes"))>>20)
	}
	fmt.Fprintf(out, "Idle, 32 groups and the catalog, a node (median of 3): CPU %.1f%% of a core over %s, %d goroutines, %d sockets, %d MiB resident.\n\n",
		median(cpu), window, median(goroutines), median(sockets), median(rss))
}

// overhead fills a table with 10^6 pairs and counts what it needs beside keys and
// values.
func overhead(t *testing.T, out *strings.Builder) {
	const pairs = 1_000_000
	mem := dataplane.NewMemory(2 << 30)
	arena := table.NewArena(mem)
	tab, err := table.New(table.Config{Arena: arena, Incarnation: 1})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range pairs {
		v := sundog.Version{Clock: sundog.Clock(i + 1)}
		require.NoError(t, tab.Put(fmt.Appendf(nil, "key-%012d", i), make([]byte, 1+rng.IntN(1000)), v, 0, 1))
	}
	s := tab.Stats()
	fmt.Fprintf(out, "Memory, %d pairs with 16 B keys and values of 1 to 1,000 B: %.0f B an entry beside key and value for index and slots, %.0f B with all that is mapped.\n\n",
		pairs, float64(s.ItemBytes+s.IndexBytes-s.LiveBytes)/pairs, float64(mem.Used()-s.LiveBytes)/pairs)
	tab.Close()
	require.NoError(t, arena.Close())
}

// pause lets real time pass: what is measured is what happens in it.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

func metric(t *testing.T, n *procs.Node, name string) float64 {
	resp, err := http.Get("http://" + n.Addrs().HTTP + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			require.NoError(t, err)
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func socketCount(t *testing.T, n *procs.Node) int {
	dir := fmt.Sprintf("/proc/%d/fd", n.Pid())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	count := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			count++
		}
	}
	return count
}
