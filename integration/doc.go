// Package integration tests whole clusters: real server processes on loopback
// with real signals, driven by the client and by the command line.
//
// Quick checks run with every `go test ./...`; those that take longer run when
// SUNDOG_LONG=1, as `make test` sets it, and the soak (minutes to hours) by
// `make soak`. Random schedules print their seed; SUNDOG_SEED replays one. What
// needs root on Linux says so and skips, unless SUNDOG_REQUIRE_ROOT=1, as CI sets
// it there.
package integration
