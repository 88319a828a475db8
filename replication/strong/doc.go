// Package strong is the strong engine: the deterministic state machine of one
// partition over a Raft group (replication/raftgroup) and the tables of its
// pools (dataplane/table), and the request path around it.
//
// The walk of a Put: Mutate checks the op and reserves room for it (quota share
// and node memory) on the leader, before the log; it is proposed, committed and
// applied on every replica; Apply executes it and its result goes back to
// Mutate. The walk of a Get: a barrier that starts after the request arrived,
// then a lock-free read of the table.
//
// Apply is a pure function of the log: it consults neither clock, map, quota nor
// memory. Pools exist for it from the log's pool-set entry to the one that no
// longer lists them; time is the entries' own. docs/strong.md has the entry and
// snapshot formats and the argument.
//
// What it is not for: consensus and batching (raftgroup), placement and
// membership changes (node), the memory format (dataplane/table). In this
// release it keeps no leases and no request ids.
//
// # Goroutines
//
// A [Partition] owns one goroutine, lead, which after an election brings the
// pool set up to date and lets writes in, and proposes a tick when a deadline
// has passed; one, alarm, which waits to close the group if Apply has to stop;
// and one, hash, which works off the checks that Apply queued. Close joins all.
package strong
