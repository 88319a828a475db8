// Package catalogpb holds the catalog's commands and its snapshot, generated from
// catalog.proto by make generate. Only package catalog uses it.
package catalogpb
