// Package procs runs Sundog servers as real processes on loopback: it starts
// them on ports the kernel chooses, reads where they listen, signals them, and
// starts them again on the same data.
//
// The demo and the integration tests drive clusters through it, so that both
// mean the same thing by "kill -9". It knows nothing of pools and keys; those are
// the client's.
//
// # Goroutines
//
// A [Cluster] owns one spawner goroutine, locked to its thread so that the
// kernel ends the servers if this process dies (Linux), and one waiter a running
// process, which reaps it. [Cluster.Close] kills what runs and joins them all.
package procs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// Options says what to run.
type Options struct {
	Binary string   // path of the sundog binary
	Dir    string   // directory for data and logs, one folder a node
	Nodes  int      // servers founded together
	Args   []string // more arguments of `start`, for every node
	Env    []string // more environment, KEY=VALUE
}

// Cluster is a set of server processes founded together.
type Cluster struct {
	opts  Options
	nodes []*Node

	spawn chan func()
	done  chan struct{}
	close sync.Once
}

// New lays the folders out; it starts nothing.
func New(opts Options) (*Cluster, error) {
	c := &Cluster{opts: opts, spawn: make(chan func()), done: make(chan struct{})}
	for i := range opts.Nodes {
		dir := filepath.Join(opts.Dir, "n"+strconv.Itoa(i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, &Node{Name: "n" + strconv.Itoa(i+1), Dir: dir, cluster: c})
	}
	go c.spawner()
	return c, nil
}

// Start founds the cluster, or starts it again on its data: the first node on
// its own, the others with it as the seed. It returns when every server listens.
func (c *Cluster) Start(ctx context.Context) error {
	for i, n := range c.nodes {
		if err := n.start(ctx, c.seed(i)); err != nil {
			return err
		}
	}
	return nil
}

// seed is the gossip address of a running node other than i, or "".
func (c *Cluster) seed(i int) string {
	for j, n := range c.nodes {
		if j != i && n.Running() {
			return n.Addrs().Gossip
		}
	}
	return ""
}

// Nodes returns the nodes in their order.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Add lays out one more node, which joins the others when it is started.
func (c *Cluster) Add() (*Node, error) {
	name := "n" + strconv.Itoa(len(c.nodes)+1)
	dir := filepath.Join(c.opts.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{Name: name, Dir: dir, cluster: c, joiner: true}
	c.nodes = append(c.nodes, n)
	return n, nil
}

// Listen returns the client addresses of the running nodes.
func (c *Cluster) Listen() []string {
	var addrs []string
	for _, n := range c.nodes {
		if n.Running() {
			addrs = append(addrs, n.Addrs().Listen)
		}
	}
	return addrs
}

// Close kills every running server and waits for it.
func (c *Cluster) Close() error {
	c.close.Do(func() {
		for _, n := range c.nodes {
			n.Kill()
		}
		close(c.spawn)
		<-c.done
	})
	return nil
}

// command is the process of a node, ready to be started.
func (c *Cluster) command(n *Node, seed, ports string) *exec.Cmd {
	args := []string{
		"start", "--data", filepath.Join(n.Dir, "data"),
		"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--ports-file", ports,
	}
	if !n.joiner {
		args = append(args, "--bootstrap-expect", strconv.Itoa(c.opts.Nodes))
	}
	if seed != "" {
		args = append(args, "--join", seed)
	}
	cmd := exec.Command(c.opts.Binary, append(args, c.opts.Args...)...)
	cmd.Env = append(os.Environ(), c.opts.Env...)
	bindToParent(cmd)
	return cmd
}

// launch starts cmd on the spawner's thread.
func (c *Cluster) launch(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	c.spawn <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}
