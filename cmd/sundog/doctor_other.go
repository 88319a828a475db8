//go:build !linux

package main

import "runtime"

// machine looks at nothing here: the limits that matter are told apart on Linux
// alone.
func machine() []findingJSON {
	return []findingJSON{{Name: "system", Value: runtime.GOOS, OK: true, Advice: "limits, huge pages and the clock are looked at on Linux only"}}
}
