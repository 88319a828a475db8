//go:build linux

package raftgroup

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The crash of a real file system: a child process drives a store on an ext4
// loop mount and logs on another file system what was asked and acknowledged;
// the file system is shut down under it without flushing its journal
// (FS_IOC_SHUTDOWN), mounted again, and the store is held against the log.
const (
	fsShutdown       = 0x8004587d
	shutdownNoFlush  = 2
	crashChildEnv    = "SUNDOG_CRASH_CHILD"
	requireRootEnv   = "SUNDOG_REQUIRE_ROOT"
	crashChildGroups = 4
)

// TestMain lets the test binary be a child.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashChildEnv); dir != "" {
		crashChild(dir)
	}
	if spec := os.Getenv(idleChildEnv); spec != "" {
		fmt.Fprintln(os.Stderr, idleChild(spec))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// crashChild runs until the file system fails or it is killed. Its standard
// output is the log: "group word lo hi term" with word ? for asked and ! for
// acknowledged.
func crashChild(dir string) {
	s, err := OpenStore(filepath.Join(dir, "raft.db"), StoreConfig{StallAfter: -1, Fatal: func(error) { os.Exit(3) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	var wg sync.WaitGroup
	for id := range GroupID(crashChildGroups) {
		wg.Go(func() {
			g := s.Group(id)
			rng := rand.New(rand.NewPCG(uint64(id), uint64(time.Now().UnixNano())))
			say := func(word string, op modelOp) {
				line := fmt.Sprintf("%d %s %t %t %t %d %d %d\n", id, word, op.append, op.truncate, op.set, op.lo, op.hi, op.term)
				_, _ = os.Stdout.WriteString(line)
			}
			for i := uint64(1); ; i++ {
				op := modelOp{append: true, lo: i, hi: i, term: 1}
				say("?", op)
				if g.StoreLogs(entries(i, i, 1, 50+rng.IntN(2000))) != nil {
					return
				}
				say("!", op)
				if i%16 == 0 {
					op = modelOp{set: true, term: i}
					say("?", op)
					if g.SetUint64([]byte("CurrentTerm"), i) != nil {
						return
					}
					say("!", op)
				}
			}
		})
	}
	wg.Wait()
	os.Exit(3)
}

// loopMount makes and mounts an ext4 image, or skips the test.
func loopMount(t *testing.T) (mount func() string, unmount func()) {
	impossible := func(why string, args ...any) {
		why = fmt.Sprintf(why, args...)
		if os.Getenv(requireRootEnv) == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	if os.Getuid() != 0 {
		impossible("needs root to mount a loop device")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			impossible("needs %s", tool)
		}
	}
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "mnt")
	require.NoError(t, os.Mkdir(point, 0o700))
	f, err := os.Create(image)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(96<<20))
	require.NoError(t, f.Close())
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		impossible("mkfs.ext4: %v: %s", err, out)
	}
	mounted := false
	unmount = func() {
		if mounted {
			mounted = false
			out, err := exec.Command("umount", point).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	t.Cleanup(unmount)
	first := true
	return func() string {
		out, err := exec.Command("mount", "-o", "loop", image, point).CombinedOutput()
		if err != nil && first {
			impossible("mount: %v: %s", err, out)
		}
		require.NoError(t, err, "%s", out)
		first, mounted = false, true
		return point
	}, unmount
}

// crashFileSystem runs one crash and returns what was lost.
func crashFileSystem(t *testing.T, mutant string) (lost []string, acks int) {
	mount, unmount := loopMount(t)
	point := mount()
	logPath := filepath.Join(t.TempDir(), "acks")
	out, err := os.Create(logPath)
	require.NoError(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), crashChildEnv+"="+point, "SUNDOG_MUTANT="+mutant)
	child.Stdout, child.Stderr = out, os.Stderr
	require.NoError(t, child.Start())
	ended := make(chan struct{})
	go func() { _ = child.Wait(); close(ended) }()
	defer func() { _ = child.Process.Kill(); <-ended }()
	require.Eventually(t, func() bool {
		st, err := os.Stat(logPath)
		return err == nil && st.Size() > 10_000+rand.Int64N(40_000)
	}, 20*time.Second, 3*time.Millisecond, "the child acknowledges nothing")

	d, err := os.Open(point)
	require.NoError(t, err)
	flag := uint32(shutdownNoFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), fsShutdown, uintptr(unsafe.Pointer(&flag)))
	require.Zero(t, errno, "shutdown of the file system: %v", errno)
	require.NoError(t, d.Close())
	_ = child.Process.Kill()
	<-ended
	require.NoError(t, out.Close())
	unmount()

	point = mount()
	s, err := OpenStore(filepath.Join(point, "raft.db"), StoreConfig{})
	require.NoError(t, err, "the store opens after the crash")
	w := readAcks(t, logPath)
	lost = w.check(s)
	require.NoError(t, s.Close())
	unmount()
	return lost, w.acks
}

// readAcks makes the model of what the child logged. The last line may be cut.
func readAcks(t *testing.T, path string) *crashWorkload {
	w := &crashWorkload{}
	for range crashChildGroups {
		w.models = append(w.models, &groupModel{terms: make(map[uint64]uint64)})
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var id int
		var word string
		var op modelOp
		if _, err := fmt.Sscan(strings.TrimSpace(sc.Text()), &id, &word, &op.append, &op.truncate, &op.set, &op.lo, &op.hi, &op.term); err != nil {
			continue
		}
		w.models[id].asked = op
		if word == "!" {
			w.models[id].apply()
			w.acks++
		}
	}
	return w
}
