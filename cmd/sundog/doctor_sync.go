package main

import (
	"os"
	"time"
)

// syncLatency measures writes of 4 KiB that are synced one by one.
func syncLatency(dir string) (finding findingJSON, err error) {
	f, err := os.CreateTemp(dir, ".sundog-doctor-*.tmp")
	if err != nil {
		return finding, err
	}
	defer func() {
		_ = f.Close()
		if removed := os.Remove(f.Name()); err == nil {
			err = removed
		}
	}()
	var took []time.Duration
	block := make([]byte, 4096)
	for start := time.Now(); len(took) < syncSamples && time.Since(start) < syncBudget; {
		if _, err := f.Write(block); err != nil {
			return finding, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return finding, err
		}
		took = append(took, time.Since(began))
	}
	return syncFinding(took), nil
}
