// Package rpc moves requests between clients and nodes, and between nodes: one
// port, one connection per pair, many requests in flight on it. It knows frames,
// the handshake, methods, deadlines and error kinds, and it lays out the bodies
// of the hot methods by hand. docs/protocol.md gives the wire to the bit.
//
// What it is not for: routing, retries, pools of keys or Raft. A connection
// carries one attempt of one call and says exactly how it ended: answered,
// surely not executed ([sundog.Unavailable]), or not known ([sundog.Unknown]).
// Protocols of their own (Raft lanes) get their connections from the same port
// by an upgrade ([DialUpgrade], ServerConfig.Upgrade) and are not framed here.
//
// # Goroutines
//
// A [Server] has one goroutine per listener (the caller's, in Serve), one per
// connection that shakes hands and then reads, at most one per connection that
// writes, alive only while messages wait, and one per request in service. Close
// joins all of them; a handler must therefore return when its context ends.
//
// A [Conn] has one reading goroutine and at most one writing goroutine, alive
// only while messages wait. Close joins both. A [Pool] has one goroutine per
// dial in progress; Close joins them and closes the connections.
//
// # Buffers
//
// A [Body] passes to rpc until the Call returns; a handler's answer passes for
// good. Bodies of requests and replies that are handed out belong to the
// receiver for good, and what the decoders return aliases them.
package rpc
