// Package dataplane moves registered bytes between processes and knows no
// keys. In this release it holds the first half of that: a node's registered
// memory, mapped outside Go's heap in regions under one exact budget
// ([Memory], [Region]). The fabrics that read regions from other processes and
// machines join it here.
//
// What it is not for: allocation inside a region (dataplane/table does that),
// and anything that knows a key, a pool or a partition.
//
// Buffer ownership: the bytes of a Region belong to whoever mapped it until
// Close; after Close no slice of them may be touched, since the addresses are
// no longer mapped. The race detector does not see this memory, so every user
// states the ordering argument of its concurrent accesses itself.
//
// The package starts no goroutines.
package dataplane
