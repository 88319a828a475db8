package membership

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/memberlist"

	"github.com/sundog-kv/sundog"
)

// gossipName is the name under which one boot of one node gossips.
func gossipName(m Meta) string { return fmt.Sprintf("%s-%d", m.Node, m.Boot) }

// record is what is known of one gossip name.
type record struct {
	meta   Meta
	gossip string // host:port
	gone   bool   // dead or left
}

// mailbox takes memberlist's events, which come with its node lock held: each
// is copied, replaces an undelivered one of the same name, and never waits. It
// is bounded by the names memberlist itself knows.
type mailbox struct {
	mu      sync.Mutex // guards pending and alive; held for a map access only
	pending map[string]record
	alive   map[string]bool // names admitted and not gone
	ready   chan struct{}   // one token while pending is not empty
}

func newMailbox() *mailbox {
	return &mailbox{pending: map[string]record{}, alive: map[string]bool{}, ready: make(chan struct{}, 1)}
}

func (b *mailbox) put(name string, r record) {
	b.mu.Lock()
	b.pending[name] = r
	if r.gone {
		delete(b.alive, name)
	} else {
		b.alive[name] = true
	}
	b.mu.Unlock()
	b.wake()
}

func (b *mailbox) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() map[string]record {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.pending
	b.pending = map[string]record{}
	return events
}

func (b *mailbox) admitted(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alive[name]
}

// delegate is memberlist's view of this node. Its methods are called with
// memberlist's locks held: they copy, count and return.
type delegate struct {
	box      *mailbox
	self     *atomic.Pointer[Meta]
	counters *counters
	doubled  *atomic.Pointer[string] // evidence of a second process with this node's identity
	stranger *atomic.Pointer[string] // the cluster of the last node that was kept out
}

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
)

// NodeMeta returns this node's metadata; Config.Check and the limits of the
// numbers keep it within the library's 512 bytes.
func (d *delegate) NodeMeta(int) []byte { return d.self.Load().Append(nil) }

// NotifyMsg drops user messages: none are sent.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts has none of our own.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState adds nothing to a full exchange.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState expects nothing.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive keeps out what is not one of ours: malformed metadata, a name that
// does not belong to it, and nodes of another cluster that were not yet known.
// (A known one is let through, so that its new cluster is seen; the snapshot
// leaves it out.)
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	meta, err := DecodeMeta(n.Meta)
	if err != nil {
		d.counters.malformed.Add(1)
		return err
	}
	if gossipName(meta) != n.Name {
		d.counters.malformed.Add(1)
		return sundog.Errorf(sundog.Corrupt, "gossip name %.64q with the metadata of %s", n.Name, gossipName(meta))
	}
	if own := d.self.Load(); foreign(own.Cluster, meta.Cluster) && !d.box.admitted(n.Name) {
		d.counters.foreign.Add(1)
		d.stranger.Store(&meta.Cluster)
		return sundog.Errorf(sundog.Denied, "node %s is of cluster %s, this one of %s", meta.Node, meta.Cluster, own.Cluster)
	}
	return nil
}

// foreign reports whether two nodes are of two clusters.
func foreign(own, other string) bool { return own != "" && other != "" && own != other }

// NotifyJoin hands off.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.hand(n, false) }

// NotifyUpdate hands off.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.hand(n, false) }

// NotifyLeave hands off.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.hand(n, true) }

func (d *delegate) hand(n *memberlist.Node, gone bool) {
	meta, err := DecodeMeta(n.Meta)
	if err != nil {
		return // NotifyAlive let none such in
	}
	d.box.put(n.Name, record{meta: meta, gossip: n.Address(), gone: gone})
}

// NotifyConflict sees one name, that is one boot of one directory, at two
// addresses.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.counters.conflicts.Add(1)
	if own := d.self.Load(); existing.Name == gossipName(*own) {
		d.setDoubled(fmt.Sprintf("node %s: another process with this data directory's identity gossips at %s (cloned?)", own.Node, other.Address()))
	}
}

func (d *delegate) setDoubled(evidence string) { d.doubled.CompareAndSwap(nil, &evidence) }
