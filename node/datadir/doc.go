// Package datadir owns a node's data directory: who the node is, that only one
// process uses it, and a few small things that must outlive that process.
//
// The identity file says the node's id (made once), its boot counter (raised
// and synced by every Open, before the process can speak to anybody), the
// cluster it belongs to (set once), the founding it accepted (once, for ever)
// and the cluster it heard of while it had none. It is text, with a version and
// a checksum, and is replaced whole: written beside, synced, renamed, and the
// directory synced.
//
// [PeerFence] is the other side of the boot counter: it refuses a peer whose
// directory is older than one already seen (restored from a backup), or that
// runs twice (cloned).
//
// What it is not for: raft logs and snapshots (they get a path from [Dir.Path]
// and keep their own formats), configuration, secrets.
//
// The package starts no goroutines. A [Dir] may be used by any number of them.
package datadir
