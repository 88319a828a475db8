// Package raftgroup runs the Raft groups of one node: one group for the catalog
// and one for each partition of the strong pools, all of them over one log
// store ([Store]) and one set of connections ([Mux]).
//
// A [Group] is what the rooms above see: it packs waiting commands into log
// entries ([Group.Propose]), applies committed entries to a [Machine] in log
// order, takes and restores snapshots, and tells who leads. The consensus
// itself is hashicorp/raft; this package supplies everything it leaves open and
// works round its known faults (docs/raftgroup.md says which and why):
//
//   - The store answers only after a sync. All groups' waiting operations share
//     one transaction and one sync, whatever the number of groups.
//   - The transport ignores SetHeartbeatHandler. The fast path behind it runs
//     beside raft's main thread, moves the term backwards and loses committed
//     entries (hashicorp/raft issue 695).
//   - Snapshots start when the log has grown by bytes, not by entries, and the
//     log kept behind one is bounded by bytes.
//
// What it is not for: it knows no keys, pools or maps, gives no leases and no
// reads, and decides no membership. It carries out what the catalog has decided.
//
// # Goroutines
//
// Store: one committer, joined by [Store.Close]. Mux: for each peer and lane
// one writer that also dials, and one reader while connected; for each accepted
// connection one reader and one writer; for each snapshot stream one on either
// end; all joined by [Mux.Close]. Group: for each raft instance the proposer, the
// completer of its entries (lost where raft never answers one) and the drain of
// raft's leadership channel; the callback's runner, the keeper (snapshots,
// repair), the answerer of its transport, one for each pipeline, and raft's own; all joined by [Group.Close], unless the disk is hung.
package raftgroup
