package membership

import (
	"bytes"
	"context"
	"runtime/pprof"
	"time"

	"github.com/hashicorp/memberlist"
)

// labelKey marks the goroutines of one member's memberlist.
const labelKey = "sundog-gossip"

// createLabelled starts memberlist in a goroutine-label scope: goroutines
// inherit the labels of the one that starts them (runtime/pprof), so every
// goroutine of the library, and every one those start, carries this one.
func createLabelled(ctx context.Context, label string, cfg *memberlist.Config) (lib *memberlist.Memberlist, err error) {
	pprof.Do(ctx, pprof.Labels(labelKey, label), func(context.Context) {
		lib, err = memberlist.Create(cfg)
	})
	return lib, err
}

// awaitLabelled waits until none of the library's goroutines is left. Shutdown
// only tells them to end: one in the middle of a probe of a dead member needs
// up to its probe interval, which a slow node stretches. The library offers no
// way to join them, so the goroutine profile is asked for the label.
//
// It gives up after the longest probe; what is left then touches nothing but
// memberlist's own memory.
func (m *Membership) awaitLabelled() {
	const (
		firstPause = time.Millisecond // doubles: a profile of a large process is not free
		lastPause  = 100 * time.Millisecond
		maxStretch = 8 // memberlist's AwarenessMaxMultiplier
	)
	label := []byte(m.goroutineLabel())
	end := time.Now().Add(maxStretch*m.cfg.Timing.Probe + m.cfg.Timing.Stream)
	for pause := firstPause; time.Now().Before(end); pause = min(2*pause, lastPause) {
		time.Sleep(pause)
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil || !bytes.Contains(profile.Bytes(), label) {
			return
		}
	}
	m.cfg.Logger.Warn("gossip: goroutines of the library are still running after Close")
}
