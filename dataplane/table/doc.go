// Package table is the hash table of one (pool, partition) replica, laid out in
// registered memory so that the bytes a local Get reads are the very bytes a
// one-sided reader in another process reads. docs/table-format.md is the
// format to the bit; the constants of format.go name it.
//
// The walk of a Get: [Table.Get] hashes the key, which names two candidate
// buckets (hash.go); it looks for the key's tag among their index words
// (get.go), follows the word to the item, inline in the bucket or out of line
// in the pool's [Arena], and accepts it when it is live, its key is equal and
// its sums are right (item.go). A miss is believed only when the checksums and
// the geometry epoch of the buckets prove it (bucket.go).
//
// The walk of a Put: the new item is written whole where nobody looks, the old
// item is marked dead, the index word is swapped. That order, and the marking
// of a bucket before a key can be missing from it when the table grows
// (resize.go), is what makes one instant separate old from new for every
// reader.
//
// Memory: the arena (arena.go) hands out slots of size classes from chunks,
// each chunk a region of its own (chunk.go). A slot that was taken out of the
// index is quarantined until no reader can still be inside (readers.go), and
// chunks that have become sparse are emptied and given back (compact.go).
//
// Concurrency: one goroutine at a time writes a table (its group's Apply); any
// number read. The writer's own state is guarded by the table's mutex, which a
// Get takes only after its bounded number of lock-free tries. The memory is
// outside Go's heap and the race detector does not see it, so every access that
// can meet the writer states its ordering argument.
//
// What it is not for: versions and time (the caller decides both), durability,
// and reading other processes' memory.
//
// The package starts no goroutines.
package table
