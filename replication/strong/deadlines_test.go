package strong

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
)

// The queue against a sorted list.
func TestDeadlinesComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			at   int64
			pool sundog.PoolID
			key  string
		}
		var d deadlines
		var want []entry
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				e := entry{rapid.Int64Range(1, 50).Draw(t, "at"), sundog.PoolID(rapid.IntRange(1, 3).Draw(t, "pool")),
					strings.Repeat(rapid.StringMatching(`[a-z]`).Draw(t, "letter"), rapid.SampledFrom([]int{1, 2, 100, sundog.MaxKey}).Draw(t, "size"))}
				d.push(e.at, e.pool, []byte(e.key))
				want = append(want, e)
			},
			"pop": func(t *rapid.T) {
				if len(want) == 0 {
					t.Skip("empty")
				}
				at, pool, key := d.pop()
				got := entry{at, pool, string(key)}
				i := slices.Index(want, got)
				require.GreaterOrEqual(t, i, 0, "%d/%d", at, pool)
				for _, e := range want {
					require.LessOrEqual(t, at, e.at)
				}
				want = slices.Delete(want, i, i+1)
			},
			"compact": func(t *rapid.T) {
				keep := func(at int64, _ sundog.PoolID, _ []byte) bool { return at%2 == 0 }
				d.compact(keep)
				want = slices.DeleteFunc(want, func(e entry) bool { return !keep(e.at, e.pool, nil) })
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(want), d.len())
				next := neverDeadline
				for _, e := range want {
					next = min(next, e.at)
				}
				require.Equal(t, next, d.next())
				live := 0
				for _, c := range d.chunks {
					live += c.live
				}
				require.Equal(t, len(want), live)
			},
		})
	})
}

func TestDeadlinesUseChunksAgain(t *testing.T) {
	var d deadlines
	for i := range 200_000 {
		d.push(int64(i), 1, fmt.Appendf(nil, "some key %d", i))
		if i >= 1000 {
			at, _, key := d.pop()
			require.Equal(t, fmt.Sprintf("some key %d", at), string(key))
		}
	}
	require.LessOrEqual(t, len(d.chunks), 3)
}
