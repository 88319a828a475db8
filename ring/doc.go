// Package ring is pure placement: the cluster [Map], its encoding, how
// partitions are laid over nodes ([Bootstrap]) and how that layout is edited
// when nodes come and go ([Plan]), and a client's [View] of it all.
//
// Everything here is a function of its arguments. Same arguments, same answer,
// on every machine: no clock, no randomness, no floating point in a decision.
// A placement is nevertheless agreed data, made once and committed in the map,
// and never recomputed by whoever receives it, because two releases may order
// nodes differently.
//
// What it is not for: deciding that a node is dead, committing a map, moving
// data, or electing leaders. A map states intent; who belongs to a group is the
// group's own Raft configuration.
//
// See docs/ring.md for the bounds and why they can always be met.
package ring
