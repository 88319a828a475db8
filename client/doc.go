// Package client talks to a Sundog cluster: it hashes every key to its
// partition, sends the call straight to the node that leads that partition, and
// follows the cluster through failures and map changes.
//
// The walk of a Get: [Pool.Get] makes an exchange (get.go), [Client] routes it
// by the view (route.go), sends it over one pooled connection, judges what came
// back (judge.go) and either returns, follows a redirect, refreshes the map
// (refresh.go) or backs off, always inside the call's deadline (run.go).
//
// # Outcomes
//
// A call ends in one of three ways. It is done (nil error, or an error that is
// an answer, such as NotFound, Exists, Conflict, TooLarge, NoSpace). Or it was
// surely not done (Invalid, Unavailable, Timeout, Closed and all others). Or its
// outcome is [sundog.Unknown]: a mutation went out whole and no answer came. A
// mutation that may have executed is never sent again; reads always may be.
// A deadline that passes after a mutation was sent is therefore Unknown, never
// Timeout, and so is a Close at that moment (such an error matches both Unknown
// and Closed with errors.Is).
//
// # Deadlines
//
// A context without a deadline gets [Options.Timeout] (5 s unless set), per call;
// for [Pool.Scan] per page. Inside it a read that hangs on one node is given up
// after half of what is left and asked elsewhere, and a node that does not even
// answer a ping is left by all calls after some 2.5 s (health.go).
//
// # Goroutines
//
// A Client runs none while it is idle. The map refresh runs on one goroutine, at
// most one at a time, with up to a few probes below it; a ping of a connection
// that keeps a request waiting on one of its own; a batch call runs one for each
// partition it touches, bounded; each connection has the two of package rpc. All
// are joined by [Client.Close].
//
// Not for: nodes talking to nodes (package rpc), decisions about placement
// (package ring), or caching of values, which is a later capability.
package client
