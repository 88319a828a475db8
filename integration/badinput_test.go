package integration

import (
	"bytes"
	"crypto/rand"

	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
	"github.com/sundog-kv/sundog/integration/procs"
)

// TestBadInput: what is wrong is refused with a typed error that says so, by the
// client's kinds and the command line's exit codes, and nothing is lost by it.
func TestBadInput(t *testing.T) {
	cluster := startCluster(t, 3, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})
	pool := strongPool(t, c, "p")
	ctx := within(t, time.Minute)
	_, err := pool.Put(ctx, []byte("kept"), []byte("old"))
	require.NoError(t, err)

	_, err = pool.Put(ctx, nil, nil)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = pool.Put(ctx, make([]byte, sundog.MaxKey+1), nil)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = pool.Put(ctx, []byte("kept"), make([]byte, sundog.MaxValue+1))
	require.ErrorIs(t, err, sundog.TooLarge)
	require.ErrorContains(t, err, "1048577")
	require.ErrorContains(t, err, "1048576")
	_, err = c.Pool(ctx, "nosuch")
	require.ErrorIs(t, err, sundog.NotFound)
	item, err := pool.Get(ctx, []byte("kept"))
	require.NoError(t, err)
	require.Equal(t, "old", string(item.Value))
	// The limits themselves are fine.
	_, err = pool.Put(ctx, make([]byte, sundog.MaxKey), make([]byte, sundog.MaxValue))
	require.NoError(t, err)
	_, err = pool.Put(ctx, []byte{0}, nil)
	require.NoError(t, err)

	big := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(big, make([]byte, 2<<20), 0o600))
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{3, "nosuch", []string{"get", "nosuch", "k"}},
		{3, "k", []string{"get", "p", "k"}},
		{3, "k", []string{"del", "p", "k"}},
		{2, "empty key", []string{"put", "p", "", "v"}},
		{7, "2097152", []string{"put", "p", "k", "-f", big}},
		{6, "p", []string{"pool", "create", "p", "--consistency", "strong"}},
		{2, "not in this release", []string{"pool", "create", "e", "--consistency", "eventual"}},
		{2, "--consistency", []string{"pool", "create", "x"}},
		{2, "consistency", []string{"pool", "create", "x", "--consistency", "weak"}},
		{2, "replicas", []string{"pool", "create", "x", "--consistency", "strong", "--replicas", "2"}},
		{2, "durability", []string{"pool", "create", "x", "--consistency", "strong", "--durability", "memory"}},
		{6, "kept", []string{"put", "p", "kept", "v", "--if-absent"}},
		{6, "", []string{"put", "p", "kept", "v", "--if-version", "0000000000000001"}},
		{2, "version", []string{"put", "p", "kept", "v", "--if-version", "nonsense"}},
		{2, "drain", []string{"drain", "x"}},
	} {
		r := sundogCmd(t, cluster.Listen(), "", c.args...)
		require.Equal(t, c.code, r.code, "%v: %s%s", c.args, r.stdout, r.stderr)
		require.Contains(t, r.stderr, c.says, "%v", c.args)
		require.Empty(t, r.stdout, "%v", c.args)
	}
	r := sundogCmd(t, []string{"127.0.0.1:1"}, "", "get", "p", "k", "--timeout", "1s")
	require.Equal(t, 4, r.code, r.stderr)
	item, err = pool.Get(ctx, []byte("kept"))
	require.NoError(t, err)
	require.Equal(t, "old", string(item.Value))
}

// serve tries to start a server and returns how it ended; it must end by itself.
func serve(t *testing.T, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(within(t, time.Minute), binary(t, ""), append([]string{"start"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "it should not have started: %s", out)
	return result{stderr: string(out), code: cmd.ProcessState.ExitCode()}
}

// TestBadStarts: a server that must not run says why and what to do.
func TestBadStarts(t *testing.T) {
	cluster := startCluster(t, 1, procs.Options{})
	n := cluster.Nodes()[0]
	require.NoError(t, n.Ready(within(t, time.Minute)))
	addrs := n.Addrs()
	data := func() string { return t.TempDir() }
	free := []string{"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0"}

	r := serve(t, append([]string{"--data", filepath.Join(n.Dir, "data"), "--bootstrap-expect", "1"}, free...)...)
	require.Contains(t, r.stderr, "in use")
	require.Equal(t, 6, r.code, r.stderr)

	for flag, addr := range map[string]string{"--listen": addrs.Listen, "--gossip": addrs.Gossip, "--http": addrs.HTTP} {
		args := append([]string{"--data", data(), "--bootstrap-expect", "1"}, free...)
		r = serve(t, append(args, flag, addr)...)
		require.Contains(t, r.stderr, addr)
		require.Contains(t, r.stderr, flag)
		require.Equal(t, 6, r.code, r.stderr)
	}

	r = serve(t, "--data", data(), "--listen", "0.0.0.0:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0", "--bootstrap-expect", "1")
	require.Contains(t, r.stderr, "--secret-file")

	config := filepath.Join(t.TempDir(), "sundog.yaml")
	require.NoError(t, os.WriteFile(config, []byte("lisen: 127.0.0.1:0\n"), 0o600))
	r = serve(t, "--config", config, "--data", data())
	require.Contains(t, r.stderr, "lisen")
	require.Contains(t, r.stderr, "listen")
	require.Equal(t, 2, r.code, r.stderr)

	for _, flag := range []string{"--auth", "--tls-cert=x"} {
		r = serve(t, append([]string{"--data", data(), "--bootstrap-expect", "1", flag}, free...)...)
		require.Contains(t, r.stderr, "not in this release")
		require.Equal(t, 2, r.code, r.stderr)
	}
	r = serve(t, append([]string{"--data", data(), "--bootstrap-expect", "1", "--fabric", "shm"}, free...)...)
	require.Contains(t, r.stderr, "not in this release")

	// A client that wants one cluster does not talk to another.
	_, err := client.Dial(within(t, 3*time.Second), []string{addrs.Listen}, client.Options{Cluster: strings.Repeat("ab", 16)})
	require.Error(t, err)
	require.ErrorContains(t, err, strings.Repeat("ab", 16))
}

// TestClonedDirectory: a copy of a running node's directory is refused.
func TestClonedDirectory(t *testing.T) {
	cluster := startCluster(t, 3, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})
	pool := strongPool(t, c, "p")
	n := cluster.Nodes()[2]
	n.Stop()
	clone := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(clone, os.DirFS(filepath.Join(n.Dir, "data"))))
	require.NoError(t, n.Start(within(t, time.Minute)))
	require.NoError(t, n.Ready(within(t, time.Minute)))
	r := serve(t, "--data", clone, "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--join", cluster.Nodes()[0].Addrs().Gossip)
	require.Contains(t, r.stderr, "cloned")
	require.Equal(t, 6, r.code, r.stderr)
	_, err := pool.Put(within(t, time.Minute), []byte("k"), []byte("v"))
	require.NoError(t, err)
	requireEqualReplicas(t, cluster, c, "p")
}

// TestHostileBytes: garbage, half frames, a huge length and silence on every port
// cost only those who send them.
func TestHostileBytes(t *testing.T) {
	cluster := startCluster(t, 3, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})
	pool := strongPool(t, c, "p")
	garbage := make([]byte, 64<<10)
	rand.Read(garbage)
	huge := []byte{0xf0, 0xff, 0xff, 0xff} // a length of almost 4 GiB
	sends := map[string][]byte{
		"silence": nil, "garbage": garbage, "huge length": append(huge, 1, 1, 0, 0), "half a length": {1, 2},
		"http": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "tls": {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
	}
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for _, n := range cluster.Nodes() {
		for _, addr := range []string{n.Addrs().Listen, n.Addrs().Gossip, n.Addrs().HTTP} {
			for what, data := range sends {
				conn, err := net.Dial("tcp", addr)
				require.NoError(t, err, "%s to %s", what, addr)
				open = append(open, conn) // some stay open while the cluster works
				if _, err := conn.Write(data); err != nil {
					continue // closed at once is fine
				}
				if what == "garbage" {
					conn.Close()
				}
			}
			udp, err := net.Dial("udp", addr)
			require.NoError(t, err)
			udp.Write(garbage[:1400])
			udp.Close()
		}
	}
	for i := range 200 {
		key := fmt.Appendf(nil, "k%d", i)
		_, err := pool.Put(within(t, time.Minute), key, key)
		require.NoError(t, err)
	}
	requireEqualReplicas(t, cluster, c, "p")
	for _, n := range cluster.Nodes() {
		require.True(t, n.Running(), "%s ended", n.Name)
	}
	// The oversize frame was answered by closing, not by waiting for 4 GiB.
	conn, err := net.Dial("tcp", cluster.Nodes()[0].Addrs().Listen)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(append(huge, bytes.Repeat([]byte{1}, 64)...))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = io.ReadAll(conn)
	if err != nil {
		require.NotContains(t, err.Error(), "timeout")
	}
}

// TestJSONLines: every command prints exactly one line of JSON with --json, also
// when it fails.
func TestJSONLines(t *testing.T) {
	cluster := startCluster(t, 1, procs.Options{})
	c := dial(t, cluster.Listen(), client.Options{})
	_, err := c.CreatePool(within(t, time.Minute), "p", sundog.PoolSpec{Consistency: sundog.Strong, Replicas: 1}.WithDefaults())
	require.NoError(t, err)
	for _, line := range []string{
		"put p k v", "get p k", "incr p n", "scan p", "del p k", "nodes", "partitions", "check p",
		"pool list", "pool describe p", "doctor", "version", "get p none", "get none k", "nonsense", "pool delete p",
	} {
		r := sundogCmd(t, cluster.Listen(), "", append(strings.Fields(line), "--json")...)
		require.Equal(t, 1, strings.Count(r.stdout, "\n"), "%s: %q", line, r.stdout)
		require.True(t, json.Valid([]byte(r.stdout)), "%s: %q", line, r.stdout)
	}
}
