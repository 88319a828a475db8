package founding

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
)

// event is one step of a random schedule.
type event struct {
	Do   string // start, kill, cut, heal, see, see all, crash accepted, crash bootstrapped
	Node int
	Peer int
	Mask int           // see: which nodes
	Wait time.Duration // afterwards
}

func (e event) String() string {
	return fmt.Sprintf("%s node=%d peer=%d mask=%b, %v", e.Do, e.Node, e.Peer, e.Mask, e.Wait)
}

// schedule draws fewer than 2N nodes that expect N: any two lists of N then
// share a node, which is what the proof in docs/membership.md needs.
func schedule(t *rapid.T) (expect, nodes int, events []event) {
	expect = rapid.IntRange(2, 4).Draw(t, "expect")
	nodes = rapid.IntRange(expect, 2*expect-1).Draw(t, "nodes")
	one := rapid.Custom(func(t *rapid.T) event {
		return event{
			Do:   rapid.SampledFrom([]string{"start", "start", "start", "kill", "cut", "heal", "see", "see", "see all", "crash accepted", "crash bootstrapped"}).Draw(t, "do"),
			Node: rapid.IntRange(1, nodes).Draw(t, "node"),
			Peer: rapid.IntRange(1, nodes).Draw(t, "peer"),
			Mask: rapid.IntRange(1, 1<<nodes-1).Draw(t, "mask"),
			Wait: rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond, time.Second, 7 * time.Second}).Draw(t, "wait"),
		}
	})
	return expect, nodes, rapid.SliceOfN(one, 10, 60).Draw(t, "events")
}

// play runs a schedule, heals everything, and returns all clusters that were
// ever bootstrapped and the nodes that did not end in the first of them though
// they gave their word to no other.
func play(t *testing.T, expect, nodes int, events []event) (clusters []string, astray []sundog.NodeID) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.killAll()
		running := func(id sundog.NodeID) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.nodes[id] != nil && w.nodes[id].founder != nil
		}
		for _, e := range events {
			id := sundog.NodeID(e.Node)
			switch e.Do {
			case "start":
				if !running(id) {
					w.start(id, expect)
				}
			case "kill":
				w.kill(id)
			case "cut", "heal":
				w.mu.Lock()
				w.cut[pair(id, sundog.NodeID(e.Peer))] = e.Do == "cut"
				w.mu.Unlock()
			case "see":
				var ids []sundog.NodeID
				for i := range nodes {
					if e.Mask>>i&1 == 1 {
						ids = append(ids, sundog.NodeID(i+1))
					}
				}
				w.see(id, ids...)
			case "see all":
				w.see(id)
			default:
				if running(id) {
					w.mu.Lock()
					w.nodes[id].crash = strings.TrimPrefix(e.Do, "crash ")
					w.mu.Unlock()
				}
			}
			time.Sleep(e.Wait)
		}
		w.mu.Lock()
		clear(w.cut)
		clear(w.views)
		for _, n := range w.nodes {
			n.crash = ""
		}
		w.mu.Unlock()
		for i := range nodes { // all restart, and see everybody
			w.kill(sundog.NodeID(i + 1))
			w.start(sundog.NodeID(i+1), expect)
		}
		time.Sleep(time.Minute)
		clusters = w.clusters()
		for id, n := range w.nodes {
			accepted, bound := n.disk.Founding()
			free := len(clusters) > 0 && (!bound || accepted.Cluster == clusters[0])
			if free && w.outcomeOf(id).Cluster != clusters[0] {
				astray = append(astray, id)
			}
		}
	})
	return clusters, astray
}

// Whatever is started, killed, cut, seen and forgotten in whatever order: two
// clusters never both complete, and where one did all nodes find it.
func TestNeverTwoClusters(t *testing.T) {
	var ran, founded int
	rapid.Check(t, func(rt *rapid.T) {
		expect, nodes, events := schedule(rt)
		clusters, astray := play(t, expect, nodes, events)
		ran++
		if len(clusters) > 1 {
			rt.Fatalf("%d clusters: %v", len(clusters), clusters)
		}
		if len(clusters) == 1 {
			founded++
			if len(astray) > 0 {
				rt.Fatalf("nodes %v do not find the cluster", astray)
			}
		}
	})
	t.Logf("%d schedules, %d of them founded a cluster", ran, founded)
	if founded < ran/10 {
		t.Errorf("only %d of %d schedules founded a cluster: they test nothing", founded, ran)
	}
}
