package rpc

import (
	"sync"
	"testing"
)

// BenchmarkRoundTrip is one caller, one call at a time, 128 bytes both ways.
func BenchmarkRoundTrip(b *testing.B) { benchmarkCalls(b, 1, 128) }

// BenchmarkPipelined64 is 64 callers on one connection.
func BenchmarkPipelined64(b *testing.B) { benchmarkCalls(b, 64, 128) }

// BenchmarkLarge is 64 KiB both ways, 8 callers.
func BenchmarkLarge(b *testing.B) { benchmarkCalls(b, 8, 64<<10) }

func benchmarkCalls(b *testing.B, callers, size int) {
	_, addr := startServer(b, ServerConfig{})
	metrics := &Metrics{}
	c := dialTest(b, addr, DialConfig{Metrics: metrics})
	body := make([]byte, size)
	ctx := within(b, patient*10)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range callers {
		n := b.N / callers
		if w < b.N%callers {
			n++
		}
		wg.Go(func() {
			for range n {
				if _, err := c.Call(ctx, MethodGet, 1, Body{body}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(metrics.frames[dirOut].Load())/float64(metrics.writes.Load()), "frames/write")
}
