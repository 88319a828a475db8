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
package node
