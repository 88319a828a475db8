// Package table is the hash table of one (pool, partition) replica, laid out in
// registered memory.
package table
