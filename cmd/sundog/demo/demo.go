// Package demo tells Sundog's story on real processes: a cluster is founded, real
// records are loaded and read back, a leader is killed under load, nothing that
// was acknowledged is lost, the node comes back, and all replicas are equal.
//
// # Goroutines
//
// The writers of [writers], joined before the records are checked.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/procs"
)

// Options says how to run the demo.
type Options struct {
	Binary string    // the sundog binary to start servers from
	Nodes  int       // servers, at least 3
	Out    io.Writer // the story; nil for none
	Bars   bool      // show progress: Out is a terminal
	Stay   bool      // keep the cluster up until ctx ends
}

// Report is what the demo measured; its JSON form is the command's last line.
type Report struct {
	Nodes         int   `json:"nodes"`
	Loaded        int   `json:"loaded"`         // records put
	Verified      int   `json:"verified"`       // records read back equal, before and after the failure
	Acked         int   `json:"acked"`          // writes acknowledged under load, each a key of its own
	Unknown       int   `json:"unknown"`        // writes under load whose outcome was unknown to their writer
	Keys          int   `json:"keys"`           // in the end: loaded, acked, and those of unknown that were stored
	Lost          int   `json:"lost"`           // records or acknowledged writes that did not read back equal
	FailoverMS    int64 `json:"failover_ms"`    // from kill -9 to the next acknowledged write of the partition
	EqualReplicas bool  `json:"equal_replicas"` // every replica has the same hash, the restarted ones too
}

const (
	poolName  = "packages"
	batchSize = 200
	// patience bounds each step; the whole takes about half a minute.
	patience = 60 * time.Second
)

// Run tells the story once. An error means that the story could not be told; a
// report with Lost > 0 or unequal replicas that it has a bad end.
func Run(ctx context.Context, opts Options) (Report, error) {
	report := Report{Nodes: opts.Nodes}
	if opts.Nodes < 3 {
		return report, sundog.Errorf(sundog.Invalid, "--nodes %d: a majority must survive the kill; use 3 or more", opts.Nodes)
	}
	dir, err := os.MkdirTemp("", "sundog-demo-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(dir)
	cluster, err := procs.New(procs.Options{Binary: opts.Binary, Dir: dir, Nodes: opts.Nodes})
	if err != nil {
		return report, err
	}
	defer cluster.Close()
	d := &demo{story: newStory(opts.Out, opts.Bars), binary: opts.Binary, cluster: cluster, report: &report}
	if err := d.tell(ctx); err != nil {
		return report, err
	}
	if opts.Stay {
		d.stay(ctx)
	}
	return report, nil
}

type demo struct {
	*story
	binary  string
	cluster *procs.Cluster
	report  *Report
	client  *client.Client
	pool    *client.Pool
	pairs   []client.Pair
}

func (d *demo) tell(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.found, d.load, d.readBack, d.fail, d.heal} {
		stepCtx, cancel := context.WithTimeout(ctx, patience)
		err := step(stepCtx)
		cancel()
		if err != nil {
			if d.client != nil {
				d.client.Close()
			}
			return err
		}
	}
	d.chapter("The end: %d records and %d acknowledged writes, %d lost, replicas equal: %t.",
		d.report.Loaded, d.report.Acked, d.report.Lost, d.report.EqualReplicas)
	return d.client.Close()
}

// found starts the servers and creates a strong pool.
func (d *demo) found(ctx context.Context) error {
	d.chapter("Starting %d server processes on loopback ...", d.report.Nodes)
	if err := d.cluster.Start(ctx); err != nil {
		return err
	}
	for _, n := range d.cluster.Nodes() {
		d.line("%s  pid %-7d clients %s", n.Name, n.Pid(), n.Addrs().Listen)
	}
	var err error
	if d.client, err = client.Dial(ctx, d.cluster.Listen(), client.Options{}); err != nil {
		return fmt.Errorf("dial the cluster: %w", err)
	}
	spec := sundog.PoolSpec{Consistency: sundog.Strong, Replicas: 3}.WithDefaults()
	if _, err := d.client.CreatePool(ctx, poolName, spec); err != nil {
		return fmt.Errorf("create the pool: %w", err)
	}
	if d.pool, err = d.client.Pool(ctx, poolName); err != nil {
		return err
	}
	d.chapter("Pool %q: strong (linearizable), 3 replicas, synced to disk before each acknowledgement.", poolName)
	return nil
}

// load puts the embedded records.
func (d *demo) load(ctx context.Context) error {
	var err error
	if d.pairs, err = records(); err != nil {
		return err
	}
	d.chapter("Loading %d packages of Debian 12 ...", len(d.pairs))
	add, end := d.progress(len(d.pairs), "loading")
	start := time.Now()
	for i := 0; i < len(d.pairs); i += batchSize {
		batch := d.pairs[i:min(i+batchSize, len(d.pairs))]
		for j, r := range d.pool.MultiPut(ctx, batch) {
			if r.Err != nil {
				return fmt.Errorf("load %q: %w", batch[j].Key, r.Err)
			}
		}
		d.report.Loaded += len(batch)
		add(len(batch))
	}
	end()
	d.line("%d records in %.1f s", d.report.Loaded, time.Since(start).Seconds())
	return nil
}

// readBack reads every record and compares the bytes.
func (d *demo) readBack(ctx context.Context) error {
	d.chapter("Reading them back: the client hashes each key to its owner ...")
	start := time.Now()
	wrong, err := d.verify(ctx, d.pairs)
	if err != nil {
		return err
	}
	d.report.Verified = len(d.pairs) - wrong
	d.report.Lost += wrong
	d.line("%d of %d equal, in %.1f s", d.report.Verified, len(d.pairs), time.Since(start).Seconds())
	if stats, err := d.client.Nodes(ctx); err == nil {
		for _, n := range stats {
			d.line("node %s  %s  leads %2d partitions, holds %2d", n.ID, n.Listen, n.Leaders, n.Replicas)
		}
	}
	return nil
}

// verify counts the pairs that do not read back equal.
func (d *demo) verify(ctx context.Context, pairs []client.Pair) (wrong int, err error) {
	add, end := d.progress(len(pairs), "verifying")
	defer end()
	for i := 0; i < len(pairs); i += batchSize {
		batch := pairs[i:min(i+batchSize, len(pairs))]
		keys := make([][]byte, len(batch))
		for j, p := range batch {
			keys[j] = p.Key
		}
		for j, r := range d.pool.MultiGet(ctx, keys) {
			switch {
			case errors.Is(r.Err, sundog.NotFound):
				wrong++
			case r.Err != nil:
				return wrong, fmt.Errorf("read %q: %w", keys[j], r.Err)
			case !bytes.Equal(r.Item.Value, batch[j].Value):
				wrong++
			}
		}
		add(len(batch))
	}
	return wrong, nil
}

// fail kills a leader under load and waits until its partition takes writes again.
func (d *demo) fail(ctx context.Context) error {
	victim, partition, partitions, err := d.victim(ctx)
	if err != nil {
		return err
	}
	d.chapter("%d writers put fresh keys; then %s, which leads partition %d, is killed with -9 ...",
		writerCount, victim.Name, partition)
	w := startWriters(ctx, d.pool, func(key []byte) bool { return sundog.PartitionOf(key, partitions) == partition })
	if err := sleep(ctx, 2*time.Second); err != nil {
		w.stop()
		return err
	}
	before := w.acked.Load()
	killed := time.Now()
	victim.Kill()
	d.line("killed pid %d after %d acknowledged writes", victim.Pid(), before)
	var first time.Time
	for ok := false; !ok; {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			w.stop()
			return fmt.Errorf("partition %d took no write after its leader was killed: %w", partition, err)
		}
		first, ok = w.firstSentAfter(killed)
	}
	d.report.FailoverMS = first.Sub(killed).Milliseconds()
	d.line("partition %d takes writes again after %d ms, led by another node", partition, d.report.FailoverMS)
	if err := sleep(ctx, 2*time.Second); err != nil {
		w.stop()
		return err
	}
	return d.account(ctx, w)
}

// account ends the load and reads back all that was acknowledged.
func (d *demo) account(ctx context.Context, w *writers) error {
	keys := w.stop()
	d.report.Acked, d.report.Unknown = len(keys), int(w.unknown.Load())
	d.line("%d acknowledged in all; %d with an unknown outcome, %d refused, each told to its writer",
		len(keys), w.unknown.Load(), w.failed.Load())
	pairs := make([]client.Pair, len(keys))
	for i, k := range keys {
		pairs[i] = client.Pair{Key: k, Value: valueOf(k)}
	}
	d.chapter("Reading back every acknowledged write, and every record again ...")
	wrong, err := d.verify(ctx, append(pairs, d.pairs...))
	if err != nil {
		return err
	}
	d.report.Lost += wrong
	d.line("lost: %d", wrong)
	return nil
}

// victim picks a node that leads a partition.
func (d *demo) victim(ctx context.Context) (*procs.Node, sundog.Partition, int, error) {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	parts, err := d.client.Partitions(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	listen := map[sundog.NodeID]string{}
	for _, n := range nodes {
		listen[n.ID] = n.Listen
	}
	for _, p := range parts {
		for _, n := range d.cluster.Nodes() {
			if p.Leader != 0 && n.Addrs().Listen == listen[p.Leader] {
				return n, p.Partition, len(parts), nil
			}
		}
	}
	return nil, 0, 0, errors.New("no partition has a leader")
}

// heal restarts whoever is down and compares all replicas.
func (d *demo) heal(ctx context.Context) error {
	for _, n := range d.cluster.Nodes() {
		if n.Running() {
			continue
		}
		d.chapter("Starting %s again on its data, on other ports ...", n.Name)
		start := time.Now()
		if err := n.Start(ctx); err != nil {
			return err
		}
		if err := n.Ready(ctx); err != nil {
			return err
		}
		d.line("%s is ready after %.1f s, listening on %s", n.Name, time.Since(start).Seconds(), n.Addrs().Listen)
	}
	d.chapter("Comparing the replicas of every partition ...")
	check, err := d.client.Check(ctx, poolName)
	if err != nil {
		return err
	}
	d.report.EqualReplicas, d.report.Keys = check.Equal, int(check.Keys)
	d.line("%d partitions, %d keys, equal: %t", check.Partitions, check.Keys, check.Equal)
	if more := d.report.Keys - d.report.Loaded - d.report.Acked; more > 0 {
		d.line("%d records + %d acknowledged + %d of the %d with an unknown outcome, which were stored after all",
			d.report.Loaded, d.report.Acked, more, d.report.Unknown)
	}
	for _, detail := range check.Details {
		d.line("%s", detail)
	}
	return nil
}

// stay keeps the cluster up until ctx ends, and says how to talk to it.
func (d *demo) stay(ctx context.Context) {
	addr := strings.Join(d.cluster.Listen(), ",")
	d.chapter("The cluster stays up; Ctrl-C ends it. In another terminal:")
	d.line("export SUNDOG_ADDR=%s", addr)
	sundog := d.binary
	if strings.ContainsAny(sundog, " \t'\"$&;()<>|*?") {
		sundog = "'" + strings.ReplaceAll(sundog, "'", `'\''`) + "'"
	}
	d.line("%s get %s %s", sundog, poolName, d.pairs[0].Key)
	d.line("%s put %s hello world", sundog, poolName)
	for _, command := range []string{"nodes", "partitions", "check " + poolName} {
		d.line("%s %s", sundog, command)
	}
	<-ctx.Done()
}

// sleep waits for d, or less when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
