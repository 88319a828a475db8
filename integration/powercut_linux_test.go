package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/procs"
)

// Killing a process keeps the kernel's page cache, so it proves no sync. Here each
// node's directory is an ext4 file system of its own on a loop device, and the
// power cut is ext4's shutdown without a journal flush: what was not synced is gone.
const (
	ext4Shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
	shutdownNoSync = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// requireRoot skips where loop mounts cannot be made, unless CI insists.
func requireRoot(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	if missing == "" {
		return
	}
	if os.Getenv("SUNDOG_REQUIRE_ROOT") == "1" {
		t.Fatalf("%s is missing (apt-get install e2fsprogs mount)", missing)
	}
	t.Skipf("needs root and e2fsprogs: %s is missing", missing)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// disk is an ext4 file system in a file.
type disk struct{ image, dir string }

func newDisk(t *testing.T, image, dir string) *disk {
	t.Helper()
	d := &disk{image, dir}
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 256<<20))
	command(t, "mkfs.ext4", "-q", "-F", image)
	d.mount(t)
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	return d
}

func (d *disk) mount(t *testing.T) {
	t.Helper()
	command(t, "mount", "-o", "loop", d.image, d.dir)
}

// cut drops all that is not synced; every later access fails until it is mounted
// again.
func (d *disk) cut() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, shutdownNoSync); err != nil {
		return fmt.Errorf("shutdown of %s: %w", d.dir, err)
	}
	return nil
}

// powerCutScenario cuts the power of all three nodes at once under load, brings
// them back and returns what was acknowledged before the cut and is missing after.
func powerCutScenario(t *testing.T, opts procs.Options, rounds int) (acked, missing int) {
	requireRoot(t)
	base := t.TempDir()
	var disks []*disk
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		disks = append(disks, newDisk(t, filepath.Join(base, name+".img"), filepath.Join(base, "nodes", name)))
	}
	if opts.Binary == "" {
		opts.Binary = binary(t, "")
	}
	opts.Dir, opts.Nodes = filepath.Join(base, "nodes"), 3
	cluster, err := procs.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { cluster.Close() })
	require.NoError(t, cluster.Start(within(t, time.Minute)))
	name := strongPool(t, dial(t, cluster.Listen(), client.Options{}), "power").Name()

	for round := range rounds {
		pool, err := dial(t, cluster.Listen(), client.Options{}).Pool(within(t, time.Minute), name)
		require.NoError(t, err)
		pairs := cutUnderLoad(t, cluster, disks, pool, round)
		acked += len(pairs)
		for _, d := range disks {
			command(t, "umount", d.dir)
			d.mount(t)
		}
		require.NoError(t, cluster.Start(within(t, time.Minute)))
		after := dial(t, cluster.Listen(), client.Options{})
		if pool, err = after.Pool(within(t, time.Minute), name); err != nil {
			return acked, len(pairs) // even the pool is gone
		}
		for _, p := range pairs {
			item, err := pool.Get(within(t, time.Minute), p.Key)
			if err != nil || string(item.Value) != string(p.Value) {
				missing++
			}
		}
		if missing == 0 {
			requireEqualReplicas(t, cluster, after, name)
		}
	}
	return acked, missing
}

func cutUnderLoad(t *testing.T, cluster *procs.Cluster, disks []*disk, pool *client.Pool, round int) []client.Pair {
	t.Helper()
	a := &appender{pool: pool}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() { a.run(ctx, 1000*round+id) })
	}
	require.Eventually(t, func() bool { return a.count() > 500 }, time.Minute, 10*time.Millisecond)
	for _, d := range disks {
		require.NoError(t, d.cut())
	}
	for _, n := range cluster.Nodes() {
		n.Kill()
	}
	stop()
	wg.Wait()
	t.Logf("%d acknowledged before the power was cut", len(a.acked))
	return a.acked
}

// TestPowerCut: nothing that was acknowledged is lost with the page cache.
func TestPowerCut(t *testing.T) {
	long(t)
	acked, missing := powerCutScenario(t, procs.Options{}, 2)
	require.Greater(t, acked, 500)
	require.Zero(t, missing)
}
