// Package sundog holds the nouns of the Sundog service: node, pool, slot,
// partition, version, and the error kinds that keep their identity across the
// wire.
//
// Sundog is a replicated distributed hash table. A key hashes to a slot
// ([SlotOf]), a slot belongs to a partition ([Slot.Partition]), and a
// partition is placed on nodes. Everything that any two rooms of the house must
// agree on, and nothing else, lives here; the package imports only the standard
// library.
//
// What it is not for: configuration, encoding of messages, or behaviour. See
// docs/architecture.md for the map of the house and docs/walks.md for the way
// of a Get and a Put through it.
package sundog
