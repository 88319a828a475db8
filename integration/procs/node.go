package procs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Addrs is where a server listens, as its --ports-file says.
type Addrs struct {
	Listen string `json:"listen"`
	Gossip string `json:"gossip"`
	HTTP   string `json:"http"`
}

// Node is one server: a data directory, and the process that runs on it, if any.
type Node struct {
	Name string
	Dir  string // holds data/ and log

	cluster *Cluster
	joiner  bool

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd
	addrs Addrs
	ended chan struct{} // closed when cmd was reaped
	state *os.ProcessState
}

// Start runs the server on its data, with some running node as the seed, and
// waits until it listens.
func (n *Node) Start(ctx context.Context) error {
	for i, other := range n.cluster.nodes {
		if other == n {
			return n.start(ctx, n.cluster.seed(i))
		}
	}
	return fmt.Errorf("node %s is not of this cluster", n.Name)
}

func (n *Node) start(ctx context.Context, seed string) error {
	if n.Running() {
		return fmt.Errorf("node %s runs already", n.Name)
	}
	ports := filepath.Join(n.Dir, "ports.json")
	if err := os.Remove(ports); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(n.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := n.cluster.command(n, seed, ports)
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.cluster.launch(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.ended, n.state = cmd, ended, nil
	n.mu.Unlock()
	go n.reap(cmd, ended)

	addrs, err := n.waitPorts(ctx, ports, ended)
	if err != nil {
		n.Kill()
		return fmt.Errorf("node %s: %w%s", n.Name, err, n.logTail())
	}
	n.mu.Lock()
	n.addrs = addrs
	n.mu.Unlock()
	return nil
}

func (n *Node) reap(cmd *exec.Cmd, ended chan struct{}) {
	cmd.Wait() // the state says how it ended
	n.mu.Lock()
	n.state = cmd.ProcessState
	n.mu.Unlock()
	close(ended)
}

// waitPorts polls for the ports file, which the server renames into place.
func (n *Node) waitPorts(ctx context.Context, path string, ended chan struct{}) (Addrs, error) {
	for {
		var addrs Addrs
		if data, err := os.ReadFile(path); err == nil {
			return addrs, json.Unmarshal(data, &addrs)
		}
		select {
		case <-ctx.Done():
			return addrs, fmt.Errorf("no ports file yet: %w", ctx.Err())
		case <-ended:
			return addrs, fmt.Errorf("the server ended: %v", n.ProcessState())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Ready polls the server's /readyz until it answers 200.
func (n *Node) Ready(ctx context.Context) error {
	url := "http://" + n.Addrs().HTTP + "/readyz"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready: %w%s", n.Name, ctx.Err(), n.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Running reports whether the process runs (a stopped one does).
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Addrs returns where the server listens, or last listened.
func (n *Node) Addrs() Addrs {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs
}

// Pid returns the process id of the running or last process.
func (n *Node) Pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || n.cmd.Process == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// ProcessState returns how the last process ended, nil while one runs.
func (n *Node) ProcessState() *os.ProcessState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// LogPath is the file that collects what the server prints, over restarts.
func (n *Node) LogPath() string { return filepath.Join(n.Dir, "log") }

// Kill ends the process at once (SIGKILL) and waits; nothing when none runs.
func (n *Node) Kill() { n.end(os.Kill) }

// Stop asks the process to end (SIGTERM) and waits. Windows has no such signal:
// there it kills.
func (n *Node) Stop() {
	if runtime.GOOS == "windows" {
		n.end(os.Kill)
		return
	}
	n.end(syscall.SIGTERM)
}

func (n *Node) end(sig os.Signal) {
	if !n.Running() {
		return
	}
	n.mu.Lock()
	cmd, ended := n.cmd, n.ended
	n.mu.Unlock()
	cmd.Process.Signal(sig) // an error means that it has just ended
	<-ended
}

// logTail is the end of the log, for error messages.
func (n *Node) logTail() string {
	data, err := os.ReadFile(n.LogPath())
	if err != nil || len(data) == 0 {
		return ""
	}
	return "; its log ends:\n" + string(data[max(0, len(data)-2000):])
}
