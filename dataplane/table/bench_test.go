package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func benchTable(b *testing.B, keys, size int) (*Table, [][]byte) {
	tab, _, _ := newTable(b, 8<<30)
	names := make([][]byte, keys)
	for i := range names {
		names[i] = sizedKey(i)
		require.NoError(b, tab.Put(names[i], telling(names[i], version(1), size), version(1), 0, 1))
	}
	return tab, names
}

// scattered walks all keys in an order that caches cannot guess.
func scattered(i, n int) int { return int(uint64(i) * 0x9e3779b97f4a7c15 >> 20 % uint64(n)) }

func BenchmarkGet(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		for _, size := range []int{128, 512, 4096} {
			if keys*size > 1<<30 {
				continue
			}
			tab, names := benchTable(b, keys, size)
			b.Run(fmt.Sprintf("hit/keys=%d/value=%d", keys, size), func(b *testing.B) {
				buf := make([]byte, 0, size)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, ok := tab.Get(names[scattered(i, keys)], buf); !ok {
						b.Fatal("missing")
					}
				}
			})
			b.Run(fmt.Sprintf("miss/keys=%d/value=%d", keys, size), func(b *testing.B) {
				key := []byte("none:00000000000")
				for i := 0; b.Loop(); i++ {
					copy(key[5:], names[scattered(i, keys)][5:])
					if _, ok := tab.Get(key, nil); ok {
						b.Fatal("there")
					}
				}
			})
		}
	}
}

func BenchmarkGetParallel(b *testing.B) {
	const keys = 100_000
	tab, names := benchTable(b, keys, 128)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		buf := make([]byte, 0, 128)
		for i := 0; p.Next(); i++ {
			if _, ok := tab.Get(names[scattered(i, keys)], buf); !ok {
				b.Fatal("missing")
			}
		}
	})
}

func BenchmarkPut(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		for _, size := range []int{128, 512} {
			tab, names := benchTable(b, keys, size)
			value := make([]byte, size)
			b.Run(fmt.Sprintf("overwrite/keys=%d/value=%d", keys, size), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := tab.Put(names[scattered(i, keys)], value, version(i), 0, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("new/value=128", func(b *testing.B) {
		tab, _, _ := newTable(b, 8<<30)
		value, key := make([]byte, 128), make([]byte, 0, 16)
		for i := 0; b.Loop(); i++ {
			if err := tab.Put(fmt.Appendf(key[:0], "user:%011d", i), value, version(i), 0, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}
