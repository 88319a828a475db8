// Package ringpb is the protobuf form of the cluster map, generated from
// ring.proto by make generate. Only package ring uses it.
package ringpb
