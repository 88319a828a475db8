// Package node is one Sundog server: it opens the data directory, meets the
// others by gossip, founds or joins a cluster, keeps the cluster's map, hosts
// the replicas that the map places here, and answers clients and other nodes.
//
// The walk of a request: [rpc.Server] hands it to handlers (handler.go), which
// pull the map first if the request has seen a newer one, find the pool and the
// partition in the map (data.go), and call the partition's engine. The walk of a
// change: a pool method reaches the catalog's leader (writes.go), is committed
// there, becomes the next map (package catalog), reaches every node (atlas.go,
// herald.go, puller.go), and each node hosts what is placed on it (hosting.go).
//
// What it is not for: consensus (replication/raftgroup), the state machines of
// pools (replication/strong), the wire (rpc), flags and signals (cmd).
//
// # Goroutines
//
// A [Node] owns these loops, all started by Open and joined by Close: enter
// (founding or joining, then registration), the puller, the herald with one
// goroutine per push under way, the steward, hosting (openings and births), the
// sync of pool sets, followMap and followMembers; one that accepts on the data
// port, and one on the admin port with those of its requests. Calls that ask
// several nodes or partitions at once start goroutines and join them before they
// return. Everything else belongs to the rooms below and is joined by their
// Close.
package node
