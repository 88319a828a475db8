package datadir

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

const (
	clusterA = "0123456789abcdef0123456789abcdef"
	clusterB = "fedcba9876543210fedcba9876543210"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path, now)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// reopen closes and opens again, as a restart does.
func reopen(t *testing.T, d *Dir) *Dir {
	t.Helper()
	require.NoError(t, d.Close())
	return open(t, d.path)
}

func TestIdentityOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	d := open(t, path)
	id, nonce := d.ID(), d.Nonce()
	require.NotZero(t, id)
	require.EqualValues(t, 1, d.Boot())
	require.NotZero(t, nonce)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	require.NoError(t, d.SetCluster(clusterA))
	require.NoError(t, d.Hear(clusterB))
	for boot := uint64(2); boot < 5; boot++ {
		d = reopen(t, d)
		require.Equal(t, id, d.ID())
		require.Equal(t, boot, d.Boot())
		require.NotEqual(t, nonce, d.Nonce())
		require.Equal(t, clusterA, d.Cluster())
		require.Equal(t, clusterB, d.Heard())
	}
	text, err := os.ReadFile(filepath.Join(path, identityName))
	require.NoError(t, err)
	require.Contains(t, string(text), id.String(), "a person must be able to read it")
	require.NotContains(t, string(text), strconv.FormatUint(d.Nonce(), 10))
	require.Equal(t, filepath.Join(path, "raft", "log"), d.Path("raft", "log"))
}

func TestLocked(t *testing.T) {
	d := open(t, t.TempDir())
	_, err := Open(d.path, now)
	require.ErrorIs(t, err, sundog.Conflict)
	require.ErrorContains(t, err, d.path)
	require.ErrorContains(t, err, "in use by process "+strconv.Itoa(os.Getpid()))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.SetCluster(clusterA), sundog.Closed)
	require.ErrorIs(t, d.SaveMap(nil), sundog.Closed)
	again := open(t, d.path)
	require.EqualValues(t, 2, again.Boot(), "a refused Open counts no boot")
}

// Another process holds the lock until it ends, however it ends.
func TestLockedByAnotherProcess(t *testing.T) {
	if path := os.Getenv("SUNDOG_TEST_HOLD"); path != "" {
		_, err := Open(path, now)
		require.NoError(t, err)
		os.Stdout.WriteString("held\n")
		os.Stdin.Read(make([]byte, 1))
		return
	}
	path := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockedByAnotherProcess$")
	cmd.Env = append(os.Environ(), "SUNDOG_TEST_HOLD="+path)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)
	_, err = Open(path, now)
	require.ErrorIs(t, err, sundog.Conflict)
	require.ErrorContains(t, err, "process "+strconv.Itoa(cmd.Process.Pid))
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	require.EqualValues(t, 2, open(t, path).Boot())
}

func TestNotOurs(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o600))
	_, err := Open(path, now)
	require.ErrorIs(t, err, sundog.Invalid)
	require.ErrorContains(t, err, "thesis.tex")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(file, now)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = Open("", now)
	require.ErrorIs(t, err, sundog.Invalid)

	d := open(t, t.TempDir())
	require.NoError(t, d.SaveMap([]byte("map")))
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(d.Path(identityName)))
	_, err = Open(d.path, now)
	require.ErrorIs(t, err, sundog.Corrupt)
	require.ErrorContains(t, err, identityName)
}

// Every damaged byte is noticed, and the message says what to do.
func TestDamagedIdentity(t *testing.T) {
	d := open(t, t.TempDir())
	require.NoError(t, d.AcceptFounding(founding(clusterA, 1, d.ID())))
	require.NoError(t, d.Close())
	whole, err := os.ReadFile(d.Path(identityName))
	require.NoError(t, err)
	want := d.id
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 0x01
		got, err := decodeIdentity(bad, "identity")
		if err == nil { // the remark, or the layout: nothing that counts
			require.Equal(t, want, got, "byte %d", i)
			continue
		}
		require.Contains(t, []sundog.Kind{sundog.Corrupt, sundog.Invalid}, sundog.KindOf(err))
		require.Regexp(t, "restore the file|newer", err.Error())
	}
	for cut := range len(whole) - 2 {
		_, err := decodeIdentity(whole[:cut], "identity")
		require.ErrorIs(t, err, sundog.Corrupt)
	}
	require.NoError(t, os.WriteFile(d.Path(identityName), whole[:100], 0o600))
	_, err = Open(d.path, now)
	require.ErrorIs(t, err, sundog.Corrupt)

	newer := strings.Replace(string(whole), `"version": 2`, `"version": 3`, 1)
	require.NoError(t, os.WriteFile(d.Path(identityName), []byte(newer), 0o600))
	_, err = Open(d.path, now)
	require.ErrorIs(t, err, sundog.Invalid)
	require.ErrorContains(t, err, "newer Sundog (format 3, this one knows 2)")
	older := strings.Replace(string(whole), `"version": 2`, `"version": 1`, 1)
	require.NoError(t, os.WriteFile(d.Path(identityName), []byte(older), 0o600))
	require.Equal(t, d.ID(), open(t, d.path).ID(), "the last release's")
}

func founding(cluster string, ids ...sundog.NodeID) Founding {
	f := Founding{Cluster: cluster, Members: ids, Params: "partitions 32"}
	if len(ids) > 0 {
		f.Founder = ids[0]
	}
	return f
}

func TestOneClusterForEver(t *testing.T) {
	d := open(t, t.TempDir())
	require.ErrorIs(t, d.SetCluster("short"), sundog.Invalid)
	require.ErrorIs(t, d.SetCluster(strings.Repeat("0", 32)), sundog.Invalid)
	require.ErrorIs(t, d.SetCluster(strings.ToUpper(clusterA)), sundog.Invalid)
	require.NoError(t, d.SetCluster(clusterA))
	require.NoError(t, d.SetCluster(clusterA))
	for range 2 {
		err := d.SetCluster(clusterB)
		require.ErrorIs(t, err, sundog.Conflict)
		require.ErrorContains(t, err, clusterA)
		require.ErrorContains(t, err, clusterB)
		require.ErrorIs(t, d.AcceptFounding(founding(clusterB, 1, 2)), sundog.Conflict)
		d = reopen(t, d)
	}
	require.Equal(t, clusterA, d.Cluster())
}

func TestOneFoundingForEver(t *testing.T) {
	d := open(t, t.TempDir())
	_, ok := d.Founding()
	require.False(t, ok)
	for name, bad := range map[string]Founding{
		"no members": founding(clusterA), "not sorted": founding(clusterA, 2, 1), "twice": founding(clusterA, 1, 1),
		"no cluster": founding("", 1), "founder": {Cluster: clusterA, Founder: 2, Members: []sundog.NodeID{1, 2}},
	} {
		require.ErrorIs(t, d.AcceptFounding(bad), sundog.Invalid, name)
	}
	f := founding(clusterA, 1, 2, 3)
	require.NoError(t, d.AcceptFounding(f))
	for range 2 {
		require.NoError(t, d.AcceptFounding(f))
		got, ok := d.Founding()
		require.True(t, ok)
		require.Equal(t, f, got)
		got.Members[0] = 99 // a copy
		for _, other := range []Founding{founding(clusterB, 1, 2, 3), founding(clusterA, 1, 2, 4), {Cluster: clusterA, Founder: 1, Members: f.Members}} {
			require.ErrorIs(t, d.AcceptFounding(other), sundog.Conflict)
		}
		err := d.SetCluster(clusterB)
		require.ErrorIs(t, err, sundog.Conflict)
		require.ErrorContains(t, err, clusterA)
		d = reopen(t, d)
	}
	require.NoError(t, d.SetCluster(clusterA))
}

func TestHearKeepsTheFirst(t *testing.T) {
	d := open(t, t.TempDir())
	require.ErrorIs(t, d.Hear("x"), sundog.Invalid)
	require.NoError(t, d.Hear(clusterA))
	require.NoError(t, d.Hear(clusterB))
	require.Equal(t, clusterA, reopen(t, d).Heard())
}

func TestBlobs(t *testing.T) {
	d := open(t, t.TempDir())
	_, err := d.LoadMap()
	require.ErrorIs(t, err, sundog.NotFound)
	peers, err := d.LoadPeers()
	require.NoError(t, err)
	require.Empty(t, peers)
	want := []Peer{{Node: 1, Gossip: "10.0.0.1:7401"}, {Node: 2, Gossip: "10.0.0.2:7401"}}
	require.NoError(t, d.SavePeers(want))
	require.NoError(t, d.SaveMap([]byte("one")))
	require.NoError(t, d.SaveMap([]byte("two")))
	// A crash in the middle of a later write.
	require.NoError(t, os.WriteFile(d.Path(mapName+tempSuffix), []byte("SDB1 half"), 0o600))
	d = reopen(t, d)
	got, err := d.LoadMap()
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
	peers, err = d.LoadPeers()
	require.NoError(t, err)
	require.Equal(t, want, peers)
	require.NoFileExists(t, d.Path(mapName+tempSuffix))

	data, err := os.ReadFile(d.Path(mapName))
	require.NoError(t, err)
	for i := range data {
		bad := append([]byte(nil), data...)
		bad[i] ^= 0x10
		require.NoError(t, os.WriteFile(d.Path(mapName), bad, 0o600))
		_, err = d.LoadMap()
		require.ErrorIs(t, err, sundog.Corrupt)
	}
	require.NoError(t, os.WriteFile(d.Path(peersName), data[:5], 0o600))
	_, err = d.LoadPeers()
	require.ErrorIs(t, err, sundog.Corrupt)
}

func TestStepsOnlyRise(t *testing.T) {
	d := open(t, t.TempDir())
	group, pool := StepKey{Group: 3}, StepKey{Group: 3, Pool: 9}
	require.Zero(t, d.Step(group))
	require.NoError(t, d.RaiseSteps(map[StepKey]uint64{group: 10, pool: 4}))
	for range 2 {
		require.NoError(t, d.RaiseSteps(map[StepKey]uint64{group: 10}))
		require.ErrorIs(t, d.RaiseSteps(map[StepKey]uint64{group: 9, pool: 5}), sundog.Stale)
		require.EqualValues(t, 10, d.Step(group))
		require.EqualValues(t, 4, d.Step(pool), "all or nothing")
		d = reopen(t, d)
	}
	require.NoError(t, d.RaiseSteps(map[StepKey]uint64{group: 11}))
	d = reopen(t, d)
	require.EqualValues(t, 11, d.Step(group))
	require.NoError(t, d.Close())
	require.NoError(t, os.WriteFile(d.Path(stepsName), []byte("SDB1"), 0o600))
	_, err := Open(d.path, now)
	require.ErrorIs(t, err, sundog.Corrupt)
	require.ErrorContains(t, err, "restore it")
}

func FuzzDecode(f *testing.F) {
	whole, err := encodeIdentity(identity{Node: 1, Boot: 1, Cluster: clusterA})
	require.NoError(f, err)
	f.Add(whole)
	whole, err = encodeIdentity(identity{Node: 1, Boot: 1, Refused: &refusedStart{Nonce: 7, Reason: "r"}, Fenced: "f"})
	require.NoError(f, err)
	f.Add(whole)
	f.Add(encodeBlob(encodeSteps(map[StepKey]uint64{{Group: 1}: 2})))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id, err := decodeIdentity(data, "identity"); err == nil {
			again, err := encodeIdentity(id)
			require.NoError(t, err)
			got, err := decodeIdentity(again, "identity")
			require.NoError(t, err)
			require.Equal(t, id.Node, got.Node)
		}
		if payload, ok := decodeBlob(data); ok {
			_, _ = decodeSteps(payload)
		}
		if steps, err := decodeSteps(data); err == nil {
			got, err := decodeSteps(encodeSteps(steps))
			require.NoError(t, err)
			require.Equal(t, steps, got)
		}
	})
}
