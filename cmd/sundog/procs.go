package main

import (
	"fmt"
	"log/slog"
	"runtime"
)

// serverProcs is the GOMAXPROCS of a server on a machine with fewer processors.
// A goroutine in fdatasync keeps its P until the runtime takes it away; with more
// Ps than processors the others go on meanwhile (docs/raftgroup.md has figures).
const serverProcs = 8

// manyProcessors sets GOMAXPROCS for a server, unless the environment does; the
// function that it returns takes that back.
func manyProcessors(chosen string, log *slog.Logger) func() {
	had := runtime.GOMAXPROCS(0)
	if chosen != "" || had >= serverProcs {
		return func() {}
	}
	runtime.GOMAXPROCS(serverProcs)
	log.Info("GOMAXPROCS raised: syncs to disk hold a processor each; set GOMAXPROCS to choose otherwise", "from", had, "to", serverProcs)
	return func() { runtime.GOMAXPROCS(had) }
}

// processors is doctor's finding.
func processors(chosen string) findingJSON {
	n, procs := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	f := findingJSON{Name: "cpus", Value: fmt.Sprintf("%d, GOMAXPROCS %d", n, procs), OK: n >= 2}
	if chosen == "" && procs < serverProcs {
		f.Value += fmt.Sprintf(" (start raises it to %d)", serverProcs)
	}
	if !f.OK {
		f.Advice = "syncs to disk and requests share one processor; give a server two or more"
	}
	return f
}
