//go:build unix

package raftgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// benchCluster is three nodes over loopback with default timings.
func benchCluster(b *testing.B, groups int) *cluster {
	c := newCluster(b, 3, groups, func(cfg *Config) { cfg.Timings = sundog.DefaultTimings() })
	c.net.loopback = true
	c.startAll()
	for g := range groups {
		c.leader(g)
	}
	return c
}

// BenchmarkPropose measures acknowledged 256-byte commands: three replicas in
// one process, every acknowledgement behind the syncs of a majority.
func BenchmarkPropose(b *testing.B) {
	for _, groups := range []int{8, 32} {
		for _, writers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("groups=%d/writers=%d", groups, writers), func(b *testing.B) {
				c := benchCluster(b, groups)
				leaders := make([]*Group, groups)
				for g := range groups {
					leaders[g] = c.leader(g).groups[g]
				}
				commits := uint64(0)
				for _, n := range c.nodes {
					commits -= n.store.Commits()
				}
				cmd := make([]byte, 256)
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for w := range writers {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if _, err := leaders[w%groups].Propose(context.Background(), cmd); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				for _, n := range c.nodes {
					commits += n.store.Commits()
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
				b.ReportMetric(float64(b.N)/float64(max(commits, 1)), "appends/commit")
			})
		}
	}
}

// BenchmarkIdle measures the processor time that 32 idle groups cost a node:
// the share of one core, all three nodes being in this process.
func BenchmarkIdle(b *testing.B) {
	c := benchCluster(b, 32)
	time.Sleep(2 * time.Second)
	const span = 5 * time.Second
	for range b.N {
		before := processorTime(b)
		time.Sleep(span)
		b.ReportMetric(100*(processorTime(b)-before).Seconds()/span.Seconds()/3, "%core/node")
	}
	b.ReportMetric(float64(c.net.connections())/2, "connections")
}

func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStore measures appends to one store without raft, by groups that wait
// for each of their own.
func BenchmarkStore(b *testing.B) {
	for _, groups := range []int{1, 8, 32, 96} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			s, err := OpenStore(filepath.Join(b.TempDir(), "raft.db"), StoreConfig{})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for id := range groups {
				wg.Go(func() {
					g := s.Group(GroupID(id))
					for i := uint64(1); next.Add(1) <= int64(b.N); i++ {
						if err := g.StoreLogs(entries(i, i, 1, 256)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(b.N)/float64(s.Commits()), "appends/commit")
		})
	}
}

// BenchmarkSync measures what the disk does: 4 KiB rewritten and synced.
func BenchmarkSync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	require.NoError(b, err)
	defer f.Close()
	page := make([]byte, 4096)
	for range b.N {
		_, err := f.WriteAt(page, 0)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
}
