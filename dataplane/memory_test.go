package dataplane_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// TestBudget: used is the sum of the open regions after any order of Map and
// Close, refusals included, and never above the limit.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1 << 20
		m := dataplane.NewMemory(limit)
		var open []*dataplane.Region
		used := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				size := rapid.Int64Range(1, limit/2).Draw(t, "size")
				r, err := m.Map(size)
				if err != nil {
					e := sundog.AsError(err)
					require.Equal(t, sundog.NoSpace, e.Kind)
					require.Equal(t, used, e.Used)
					require.Equal(t, int64(limit), e.Limit)
					require.Greater(t, used+size+4095, int64(limit))
					return
				}
				require.GreaterOrEqual(t, r.Size(), size)
				require.Len(t, r.Bytes(), int(r.Size()))
				used += r.Size()
				open = append(open, r)
			},
			"close": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none")
				}
				size := open[0].Size()
				require.NoError(t, open[0].Close())
				require.NoError(t, open[0].Close())
				used -= size
				open = open[1:]
			},
			"": func(t *rapid.T) {
				require.Equal(t, used, m.Used())
				require.LessOrEqual(t, used, m.Limit())
			},
		})
		for _, r := range open {
			require.NoError(t, r.Close())
		}
		require.Zero(t, m.Used())
	})
}

func TestMapRefuses(t *testing.T) {
	m := dataplane.NewMemory(1 << 62)
	_, err := m.Map(0)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = m.Map(-1)
	require.ErrorIs(t, err, sundog.Invalid)
	_, err = m.Map(1 << 61) // within the budget, beyond any machine
	require.Error(t, err)
	require.Zero(t, m.Used())
	_, err = dataplane.NewMemory(1 << 20).Map(1<<63 - 1)
	require.Error(t, err)
}

func TestRegionIsZeroedAndWritable(t *testing.T) {
	m := dataplane.NewMemory(64 << 20)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				r, err := m.Map(1 << 20)
				require.NoError(t, err)
				for j, b := range r.Bytes() {
					if b != 0 {
						t.Errorf("byte %d is %d", j, b)
						break
					}
				}
				r.Bytes()[len(r.Bytes())-1] = byte(i + 1)
				require.NoError(t, r.Close())
			}
		})
	}
	wg.Wait()
	require.Zero(t, m.Used())
}
