package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func sizedKey(i int) []byte { return fmt.Appendf(nil, "user:%011d", i) } // 16 bytes

// TestOverhead measures what an entry costs beyond its key and value: value
// sizes 1 to 1,000 equally often, and some single sizes for the log. Everything
// mapped counts, slack of chunks included.
func TestOverhead(t *testing.T) {
	measure := func(keys int, size func(i int) int) (perKey, reserved, inline float64) {
		tab, arena, _ := newTable(t, 4<<30)
		value := telling([]byte("x"), version(1), 1000)
		for i := range keys {
			require.NoError(t, tab.Put(sizedKey(i), value[:size(i)], version(i+1), 0, 1))
		}
		s, n := tab.Stats(), float64(keys)
		return float64(s.ItemBytes+s.IndexBytes-s.LiveBytes) / n, float64(arena.Stats().Reserved-s.LiveBytes) / n, 100 * float64(s.Inline) / n
	}
	for _, size := range []int{1, 16, 64, 100, 128, 176, 256, 1000} {
		slots, mapped, inline := measure(20_000, func(int) int { return size })
		t.Logf("value %4d B: %5.1f B an entry in slots, %5.1f B mapped, %.0f%% inline", size, slots, mapped, inline)
	}
	slots, mapped, inline := measure(100_000, func(i int) int { return 1 + i*7919%1000 })
	t.Logf("value 1-1000 B: %5.1f B an entry in slots, %5.1f B mapped, %.0f%% inline", slots, mapped, inline)
	require.Less(t, slots, 80.0, "bytes of overhead an entry, index and slots")
	require.Less(t, mapped, 110.0, "with what is mapped and not used yet; at more keys it nears the slots'")
}

// TestShrink: memory comes back after 90% of the data is deleted (CASE 35), for
// pairs that lie inline and for items of many sizes, and reads stay right.
func TestShrink(t *testing.T) {
	for name, size := range map[string]func(i int) int{
		"inline": func(int) int { return 100 },
		"mixed":  func(i int) int { return 1 + i*7919%1000 },
		"large":  func(i int) int { return 2000 + i%3000 },
	} {
		t.Run(name, func(t *testing.T) {
			const keys = 20_000
			tab, arena, mem := newTable(t, 1<<30)
			for i := range keys {
				key := sizedKey(i)
				require.NoError(t, tab.Put(key, telling(key, version(i+1), size(i)), version(i+1), 0, 1))
			}
			full := mem.Used()
			perByte := float64(full) / float64(tab.Stats().LiveBytes)
			for i := range keys {
				if i%10 != 3 {
					require.True(t, tab.Delete(sizedKey(i), 2))
				}
			}
			for tab.Compact() {
			}
			verify(t, tab)
			for i := range keys {
				it, ok := tab.Get(sizedKey(i), nil)
				require.Equal(t, i%10 == 3, ok)
				if ok {
					require.True(t, told(sizedKey(i), it))
				}
			}
			left := float64(mem.Used()) / float64(tab.Stats().LiveBytes)
			t.Logf("mapped %d -> %d; per live byte %.2f -> %.2f; %+v %+v", full, mem.Used(), perByte, left, arena.Stats(), tab.Stats())
			// The rest is for what is not worth returning: the free part of the last
			// chunks and spans, and a spare chunk of each kind.
			require.Less(t, float64(mem.Used()-3<<19), 1.3*perByte*float64(tab.Stats().LiveBytes))
		})
	}
}

func TestClasses(t *testing.T) {
	require.GreaterOrEqual(t, largestSlot, itemFixed+16+1<<20+16<<10)
	for size := 1; size <= largestSlot; size += 1 + size/2000 {
		c := classOf(size)
		require.GreaterOrEqual(t, classSize(c), size)
		require.Zero(t, classSize(c)%granule)
		if c > smallest {
			require.Less(t, classSize(c-1), size)
		}
	}
	for c := smallest; c <= maxClass; c++ {
		require.Equal(t, c, int(classOf(classSize(uint8(c)))))
		pages, size := spanPages(uint8(c)), classSize(uint8(c))
		require.LessOrEqual(t, pages, chunkMax/pageSize)
		if slots := pages * pageSize / size; slots > 1 {
			require.LessOrEqual(t, slots, maxSlots)
			require.LessOrEqual(t, pages*pageSize%size*32, pages*pageSize, "class %d", c)
		}
	}
}
