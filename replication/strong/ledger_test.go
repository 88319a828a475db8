package strong

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever is in flight, applied in whatever order, lost, deleted or expired:
// the pool never holds more than its limit, and a put over an old value is
// admitted by the difference.
func TestLedgerNeverPassesItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1000
		type op struct {
			key  string
			size int64
		}
		var l ledger
		table := map[string]int64{}
		var flight []op
		key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		apply := func(key string, size int64) {
			l.applied([]byte(key), table[key], size)
			table[key] = size
		}
		take := func(t *rapid.T) op {
			if len(flight) == 0 {
				t.Skip("nothing in flight")
			}
			i := rapid.IntRange(0, len(flight)-1).Draw(t, "which")
			o := flight[i]
			flight = append(flight[:i:i], flight[i+1:]...)
			return o
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				o := op{key.Draw(t, "key"), rapid.Int64Range(1, 600).Draw(t, "size")}
				idle := len(flight) == 0
				sum := l.used - table[o.key] + o.size
				ok := l.admit([]byte(o.key), table[o.key], o.size, limit)
				if idle {
					require.Equal(t, sum <= limit || o.size <= table[o.key], ok, "alone, exactly what fits passes")
				}
				if ok {
					flight = append(flight, o)
				}
			},
			"applied": func(t *rapid.T) {
				o := take(t)
				apply(o.key, o.size)
				l.done([]byte(o.key))
			},
			"applied, outcome not seen yet": func(t *rapid.T) {
				if len(flight) > 0 {
					o := flight[rapid.IntRange(0, len(flight)-1).Draw(t, "which")]
					apply(o.key, o.size)
				}
			},
			"lost":   func(t *rapid.T) { l.done([]byte(take(t).key)) },
			"delete": func(t *rapid.T) { apply(key.Draw(t, "key"), 0) },
			"": func(t *rapid.T) {
				var used int64
				for _, size := range table {
					used += size
				}
				require.Equal(t, used, l.used)
				require.LessOrEqual(t, l.used, int64(limit))
				require.GreaterOrEqual(t, l.extra, int64(0))
				if len(flight) == 0 {
					require.Zero(t, l.extra)
					require.Empty(t, l.pending)
				}
			},
		})
	})
}

func TestLedgerOverItsLimit(t *testing.T) {
	var l ledger
	l.applied([]byte("a"), 0, 100)
	require.False(t, l.admit([]byte("b"), 0, 1, 50), "the limit was lowered")
	require.False(t, l.admit([]byte("a"), 100, 101, 50))
	require.True(t, l.admit([]byte("a"), 100, 100, 50), "what needs no more room passes")
	require.True(t, l.admit([]byte("a"), 100, 10, 50))
	l.done([]byte("a"))
	l.done([]byte("a"))
	require.False(t, l.admit([]byte("b"), 0, 1, 0), "a share of nothing")
}
