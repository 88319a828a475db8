// Package founding decides how a node that has no cluster gets one: it founds
// it, is a member of another's founding, or joins one that exists. Its one
// promise is that of nodes started together two clusters never arise; DESIGN
// section 4 gives the rules and docs/membership.md the proof.
//
// The rules are pure functions over what a node knows ([Decide], [Judge]) and a
// small count of answers ([Tally]); [Founder] drives them with a view of the
// members, a request to a peer and a durable store.
//
// What it is not for: running the catalog (the caller's Bootstrap does), adding
// nodes to a living cluster, or deciding by gossip: what gossip says can only
// delay a founding or stop it, never make a second one.
//
// # Goroutines
//
// [Founder.Run] asks the members of a founding in parallel, one goroutine each
// for the time of one round; the round joins them before it goes on. Nothing
// outlives Run.
package founding
