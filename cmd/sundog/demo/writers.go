package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// writers put fresh keys, each once, and remember which were acknowledged. One
// of them, the probe, writes only to one partition: the one whose leader will be
// killed.
type writers struct {
	pool   *client.Pool
	cancel context.CancelFunc
	wg     sync.WaitGroup

	acked   atomic.Int64
	failed  atomic.Int64
	unknown atomic.Int64

	mu     sync.Mutex // guards keys and probes
	keys   [][]byte   // acknowledged
	probes []span     // the probe's acknowledged writes
}

// span is the life of one write.
type span struct{ sent, acked time.Time }

const writerCount = 8

// startWriters begins the load; stop ends it.
func startWriters(ctx context.Context, pool *client.Pool, probe func(key []byte) bool) *writers {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{pool: pool, cancel: cancel}
	for id := range writerCount {
		w.wg.Go(func() {
			accept := func([]byte) bool { return true }
			if id == 0 {
				accept = probe
			}
			w.run(ctx, id, accept)
		})
	}
	return w
}

func (w *writers) run(ctx context.Context, id int, accept func([]byte) bool) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Appendf(nil, "demo/writer-%d/%08d", id, n)
		if !accept(key) {
			continue
		}
		sent := time.Now()
		_, err := w.pool.Put(ctx, key, valueOf(key))
		switch {
		case err == nil:
			w.acked.Add(1)
			w.mu.Lock()
			w.keys = append(w.keys, key)
			if id == 0 {
				w.probes = append(w.probes, span{sent, time.Now()})
			}
			w.mu.Unlock()
		case errors.Is(err, sundog.Unknown):
			w.unknown.Add(1)
		case ctx.Err() == nil:
			w.failed.Add(1)
		}
	}
}

// valueOf is what a writer puts under a key: recognisable, and long enough to
// show a mix-up.
func valueOf(key []byte) []byte {
	return bytes.Repeat(append(key, '|'), 4)
}

// stop ends the load and returns the acknowledged keys.
func (w *writers) stop() [][]byte {
	w.cancel()
	w.wg.Wait()
	return w.keys
}

// firstSentAfter returns when the first of the probe's writes that were sent after
// t was acknowledged.
func (w *writers) firstSentAfter(t time.Time) (acked time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.probes, func(p span) bool { return p.sent.After(t) })
	if i < 0 {
		return time.Time{}, false
	}
	return w.probes[i].acked, true
}
