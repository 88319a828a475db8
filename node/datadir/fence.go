package datadir

import (
	"sync"

	"github.com/sundog-kv/sundog"
)

// PeerFence remembers, for every node it met, the highest boot counter and the
// start nonce that came with it. Every hello of a node passes through it: a
// node that speaks with an older boot is a directory restored from a backup, and
// one that speaks with the same boot and another nonce is a second process on a
// cloned directory. Both have forgotten votes that others count on, so both are
// refused, whether or not the catalog can be asked.
//
// Of two clones the first one met is served: neither can be told to be the
// original. Register the own identity too, so that an own clone is refused.
// Call it only for peers that proved node identity; each adds an entry.
type PeerFence struct {
	mu   sync.Mutex // guards seen
	seen map[sundog.NodeID]mark
}

// mark is the newest process seen of a node; nonce 0 is "not known yet".
type mark struct{ boot, nonce uint64 }

// NewPeerFence returns a fence that has met nobody.
func NewPeerFence() *PeerFence { return &PeerFence{seen: map[sundog.NodeID]mark{}} }

// Check admits a peer and remembers it, or refuses it: Conflict, with a message
// for the peer's operator. Nonce 0 is Invalid.
func (f *PeerFence) Check(node sundog.NodeID, boot, nonce uint64) error {
	if node == 0 || boot == 0 || nonce == 0 {
		return sundog.Errorf(sundog.Invalid, "hello without node id, boot counter or nonce")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.seen[node]
	switch {
	case boot < m.boot:
		return sundog.Errorf(sundog.Conflict, "node %s: this directory is older than one already seen (cloned or restored?): "+
			"it says boot %d, boot %d was seen; stop it and start the node from an empty directory", node, boot, m.boot)
	case boot == m.boot && m.nonce != 0 && m.nonce != nonce:
		return sundog.Errorf(sundog.Conflict, "node %s: another process with this directory's identity was already seen (cloned?): "+
			"both say boot %d; stop one of them and start it from an empty directory", node, boot)
	}
	f.seen[node] = mark{boot: boot, nonce: nonce}
	return nil
}

// Above returns the boot counter that is known of a node, and whether a start
// with the given one would come after it: a restart, or a copy of a directory
// whose node still runs. Of a node that was never met there is none.
func (f *PeerFence) Above(node sundog.NodeID, boot uint64) (known uint64, above bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, met := f.seen[node]
	return m.boot, met && boot > m.boot
}

// Raise notes a boot counter known from elsewhere (the catalog), with no nonce.
// A lower one than known changes nothing.
func (f *PeerFence) Raise(node sundog.NodeID, boot uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if boot > f.seen[node].boot {
		f.seen[node] = mark{boot: boot}
	}
}
