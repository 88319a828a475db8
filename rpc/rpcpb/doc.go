// Package rpcpb holds the control messages of the wire, generated from
// control.proto by make generate; docs/protocol.md says which method carries which.
package rpcpb
