// Package membership finds the other nodes and notices when they are gone. It
// wraps hashicorp/memberlist (SWIM with Lifeguard) and adds what a node needs
// of it: typed metadata within its 512 bytes, a snapshot of the members that
// can be read without locks, rejoining for ever, and a transport that garbage
// cannot exhaust.
//
// What it is not for: deciding anything. Whoever holds the gossip key (without
// one: whoever reaches the port) can say anything here. Ownership, votes and
// the founding of a cluster never rest on it; it only says whom to ask and
// when to look. docs/membership.md says what may rely on what.
//
// A node's gossip name is its id and boot counter, so a restarted node is a new
// name: it is admitted at once on whatever address, while its earlier name is
// still being suspected, and [Membership.Members] shows the newest boot of each
// id. Two processes with one id (a cloned directory) show up as a conflict.
//
// # Goroutines
//
// Open starts, and Close joins: the event loop (turns memberlist's events into
// snapshots), the publisher (advertises changed metadata), the rejoin loop and
// its attempts, the transport's UDP reader and TCP acceptor, and memberlist's
// own goroutines, which that library does not join itself (see awaitLabelled).
package membership
