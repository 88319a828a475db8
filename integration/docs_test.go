//go:build unix

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// prelude runs a page's commands as a reader would, one after the other, in an
// empty folder. What would build or fetch the project itself is only looked up:
// make with -n, so that a target must exist; git and cd not at all.
const prelude = `
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
make() { command make -n -C "$ROOT" "$@" >/dev/null; }
git() { :; }
cd() { :; }
set -x
`

// TestDocumentedCommands runs every command that the README and the pages of docs
// show in a sh block. A page is one script: later blocks see what earlier ones did.
func TestDocumentedCommands(t *testing.T) {
	long(t)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binary(t, ""), filepath.Join(bin, "sundog")))
	for _, page := range append(append(pages, more...), filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		var script strings.Builder
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			script.WriteString(block[1])
		}
		if script.Len() == 0 {
			continue
		}
		name, _ := filepath.Rel(root, page)
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(within(t, 3*time.Minute), "bash", "-c", prelude+script.String())
			if isolated() {
				cmd = exec.CommandContext(within(t, 3*time.Minute), "unshare", "--net", "bash", "-c", "ip link set lo up\n"+prelude+script.String())
			}
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "ROOT="+root, "HOME="+cmd.Dir, "PATH="+bin+":"+os.Getenv("PATH"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			cmd.WaitDelay = 5 * time.Second
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// isolated says whether a script can have a network of its own, in which the fixed
// ports that the pages show are free whatever else runs here.
func isolated() bool {
	return exec.Command("unshare", "--net", "ip", "link", "set", "lo", "up").Run() == nil
}

// TestDemo tells the demo's story with real processes and reads its last line.
func TestDemo(t *testing.T) {
	long(t)
	r := sundogCmd(t, nil, "", "demo", "--exit", "--json")
	require.Zero(t, r.code, "%s\n%s", r.stdout, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 1, r.stdout)
	var report struct {
		Nodes, Loaded, Verified, Acked, Lost int
		FailoverMS                           int  `json:"failover_ms"`
		EqualReplicas                        bool `json:"equal_replicas"`
	}
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &report))
	require.Equal(t, 3, report.Nodes)
	require.GreaterOrEqual(t, report.Loaded, 10_000)
	require.Equal(t, report.Loaded, report.Verified)
	require.Positive(t, report.Acked)
	require.Zero(t, report.Lost)
	require.Positive(t, report.FailoverMS)
	require.True(t, report.EqualReplicas)
}
