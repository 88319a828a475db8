package founding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// world runs founders on a network in which anybody may see, hear and remember
// what a schedule says.
type world struct {
	t      testing.TB
	mu     sync.Mutex // guards all below
	nodes  map[sundog.NodeID]*node
	cut    map[[2]sundog.NodeID]bool
	views  map[sundog.NodeID][]sundog.NodeID // fixed by hand; nil: everybody who runs
	asks   int
	serial int // cluster ids drawn
}

// node is one directory and, while it runs, the process on it.
type node struct {
	w      *world
	id     sundog.NodeID
	expect int
	disk   disk

	founder *Founder
	changes chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
	outcome Outcome
	crash   string // where to stop dead: "accepted", "bootstrapped"
}

// disk survives crashes. Unlike datadir it takes a second founding: what is
// under test is that the rules never ask for one.
type disk struct {
	mu           sync.Mutex
	accepted     *Founding
	cluster      string
	heard        string
	bootstrapped []string
	down         bool // the process died: nothing is written any more
}

func (d *disk) Founding() (Founding, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.accepted == nil {
		return Founding{}, false
	}
	return *d.accepted, true
}

func (d *disk) write(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return sundog.Errorf(sundog.Closed, "crashed")
	}
	f()
	return nil
}

func (d *disk) AcceptFounding(f Founding) error { return d.write(func() { d.accepted = &f }) }
func (d *disk) SetCluster(c string) error       { return d.write(func() { d.cluster = c }) }
func (d *disk) Hear(c string) error             { return d.write(func() { d.heard = c }) }

// belong makes a disk that does not run one of a cluster's.
func (d *disk) belong(cluster string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster = cluster
}

func (d *disk) Cluster() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster
}

func (d *disk) Heard() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard
}

func (n *node) Bootstrapped(f Founding) (bool, error) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return slices.Contains(n.disk.bootstrapped, f.Cluster), nil
}

func (n *node) Bootstrap(_ context.Context, f Founding) error {
	if n.crashAt("accepted") {
		return sundog.Errorf(sundog.Closed, "crashed")
	}
	err := n.disk.write(func() {
		if !slices.Contains(n.disk.bootstrapped, f.Cluster) {
			n.disk.bootstrapped = append(n.disk.bootstrapped, f.Cluster)
		}
	})
	if n.crashAt("bootstrapped") {
		return sundog.Errorf(sundog.Closed, "crashed")
	}
	return err
}

func (n *node) crashAt(point string) bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.crash != point {
		return false
	}
	n.crash = ""
	n.disk.mu.Lock()
	n.disk.down = true
	n.disk.mu.Unlock()
	return true
}

func newWorld(t testing.TB) *world {
	return &world{t: t, nodes: map[sundog.NodeID]*node{}, cut: map[[2]sundog.NodeID]bool{}, views: map[sundog.NodeID][]sundog.NodeID{}}
}

// start runs a node, on its old disk if it ran before.
func (w *world) start(id sundog.NodeID, expect int) *node { return w.startCrashing(id, expect, "") }

// startCrashing runs a node that dies at a point of its founding, "" for none.
func (w *world) startCrashing(id sundog.NodeID, expect int, point string) *node {
	w.mu.Lock()
	n := w.nodes[id]
	if n == nil {
		n = &node{w: w, id: id}
		w.nodes[id] = n
	}
	ctx, stop := context.WithCancel(context.Background())
	n.expect, n.stop, n.done, n.outcome = expect, stop, make(chan struct{}), Outcome{}
	if point != "" {
		n.crash = point
	}
	n.disk.mu.Lock()
	n.disk.down = false
	n.disk.mu.Unlock()
	n.changes = make(chan struct{}, 1)
	n.founder = New(Deps{
		Self: id, Expect: expect, Params: "p",
		Members: func() []Member { return w.members(id) }, Changes: n.changes,
		Ask:   func(ctx context.Context, to sundog.NodeID, ask Ask) error { return w.ask(ctx, id, to, ask) },
		Store: &n.disk, Catalog: n, NewID: w.newID, Retry: time.Second,
	})
	founder, done := n.founder, n.done
	w.mu.Unlock()
	go func() {
		defer close(done)
		outcome, err := founder.Run(ctx)
		if err == nil {
			w.mu.Lock()
			n.outcome = outcome
			w.mu.Unlock()
		}
	}()
	w.changed()
	return n
}

// kill stops a node dead; what its disk holds stays.
func (w *world) kill(id sundog.NodeID) {
	w.mu.Lock()
	n := w.nodes[id]
	runs := n != nil && n.founder != nil
	if runs {
		n.founder = nil
	}
	w.mu.Unlock()
	if !runs {
		return
	}
	n.disk.mu.Lock()
	n.disk.down = true
	n.disk.mu.Unlock()
	n.stop()
	<-n.done
	w.changed()
}

func (w *world) killAll() {
	for id := range w.nodes {
		w.kill(id)
	}
}

func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	return fmt.Sprintf("%032x", w.serial)
}

func (w *world) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		select {
		case n.changes <- struct{}{}:
		default:
		}
	}
}

// see fixes what a node sees; without ids it sees all that run.
func (w *world) see(id sundog.NodeID, ids ...sundog.NodeID) {
	w.mu.Lock()
	w.views[id] = ids
	w.mu.Unlock()
	w.changed()
}

func (w *world) members(id sundog.NodeID) []Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Member
	for other, n := range w.nodes {
		if v := w.views[id]; len(v) > 0 && !slices.Contains(v, other) || n.founder == nil {
			continue
		}
		out = append(out, Member{ID: other, Expect: n.expect, Cluster: n.disk.Cluster()})
	}
	return out
}

func pair(a, b sundog.NodeID) [2]sundog.NodeID { return [2]sundog.NodeID{min(a, b), max(a, b)} }

// ask carries one ask and its answer, 10 ms each way; either may be lost to a cut.
func (w *world) ask(ctx context.Context, from, to sundog.NodeID, ask Ask) error {
	reach := func() *Founder {
		time.Sleep(10 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := w.nodes[to]; n != nil && !w.cut[pair(from, to)] {
			return n.founder
		}
		return nil
	}
	f := reach()
	if f == nil {
		return sundog.Errorf(sundog.Unavailable, "no connection")
	}
	w.mu.Lock()
	w.asks++
	w.mu.Unlock()
	err := f.HandleAsk(from, ask)
	if reach() == nil {
		return sundog.Errorf(sundog.Unavailable, "connection lost")
	}
	return err
}

// clusters returns the ids of all clusters that were ever bootstrapped.
func (w *world) clusters() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, n := range w.nodes {
		n.disk.mu.Lock()
		out = append(out, n.disk.bootstrapped...)
		n.disk.mu.Unlock()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (w *world) outcomeOf(id sundog.NodeID) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id].outcome
}

// settled waits d and requires that these nodes belong to one cluster: one
// founded it, the rest are enlisted in it or join it.
func (w *world) settled(d time.Duration, ids ...sundog.NodeID) string {
	time.Sleep(d)
	clusters := w.clusters()
	require.Len(w.t, clusters, 1)
	founded := 0
	for _, id := range ids {
		o := w.outcomeOf(id)
		require.Equal(w.t, clusters[0], o.Cluster, "node %d: %s", id, w.nodes[id].founder.Status())
		if o.Role == Founded {
			founded++
		}
	}
	require.LessOrEqual(w.t, founded, 1)
	return clusters[0]
}

func bubble(t *testing.T, f func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.killAll()
		f(t, w)
	})
}
