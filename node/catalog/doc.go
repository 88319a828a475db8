// Package catalog is the cluster's catalog: a state machine, replicated by one
// Raft group, whose state is the committed [ring.Map].
//
// Commands say what changes: founding, a node's start and addresses, pools,
// the birth of the strong groups, a node's role in the catalog's own group. The
// epoch of the map is the Raft index of the entry that changed it, so that
// "newer" means the same on every node. A map is never edited: each change
// makes a new one and publishes it whole.
//
// It is not for liveness (gossip has the hints), nor for membership of the
// groups: their Raft configurations are the truth about that, the map about
// intent (DESIGN section 4).
//
// Apply is deterministic: it reads nothing but the command and its own state,
// and what it refuses it refuses on every replica alike.
package catalog
