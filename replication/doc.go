// Package replication holds the nouns that the request path of a node needs to
// use a replica without knowing how it is replicated: [Engine], one partition's
// replica as requests see it; [Engines], which finds the engine for a pool; and
// [Arenas], the table memory that all engines of a node share.
//
// A request names a pool and keys. The node looks up the pool in its map, asks
// Engines for the pool's consistency and the key's partition, and calls the
// engine; nothing on that path switches on consistency. The strong engine is
// package replication/strong; an eventual engine stands beside it behind the
// same five methods.
//
// What it is not for: consensus (replication/raftgroup), the state machine
// (replication/strong), placement (ring), or the wire (rpc). It starts no
// goroutine.
package replication
