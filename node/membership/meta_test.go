package membership

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
)

func largest() Meta {
	return Meta{
		Node: math.MaxUint64, Boot: math.MaxUint64, Epoch: math.MaxUint64, Protocol: math.MaxUint16, Expect: MaxExpect, Cluster: clusterB,
		Listen: strings.Repeat("h", MaxAddress-6) + ":65535", HTTP: strings.Repeat("i", MaxAddress-6) + ":65535", Zone: strings.Repeat("z", MaxZone),
	}
}

// CASE 22: whatever passes the check fits, with room for later fields.
func TestLargestMetaFits(t *testing.T) {
	m := largest()
	require.NoError(t, m.Check())
	b := m.Append(nil)
	require.Len(t, b, maxFixed+2*MaxAddress+MaxZone)
	require.LessOrEqual(t, len(b), MaxMeta-64)
	got, err := DecodeMeta(append(b, "a later field"...))
	require.NoError(t, err)
	require.Equal(t, m, got)
}

func TestMetaCheck(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Meta)
		kind sundog.Kind
		says []string
	}{
		"zone":           {func(m *Meta) { m.Zone += "z" }, sundog.TooLarge, []string{"zone label", "65 bytes", "at most 64", "512"}},
		"listen":         {func(m *Meta) { m.Listen = "h" + m.Listen }, sundog.TooLarge, []string{"listen address", "161 bytes", "at most 160"}},
		"http":           {func(m *Meta) { m.HTTP = "h" + m.HTTP }, sundog.TooLarge, []string{"HTTP address", "161 bytes", "at most 160"}},
		"no node":        {func(m *Meta) { m.Node = 0 }, sundog.Invalid, []string{"node id"}},
		"cluster":        {func(m *Meta) { m.Cluster = "abc" }, sundog.Invalid, []string{"cluster id"}},
		"no listen":      {func(m *Meta) { m.Listen = "" }, sundog.Invalid, []string{"host:port"}},
		"port 0":         {func(m *Meta) { m.Listen = "h:0" }, sundog.Invalid, []string{"port"}},
		"control in it":  {func(m *Meta) { m.Zone = "a\nb" }, sundog.Invalid, []string{"printable"}},
		"not UTF-8":      {func(m *Meta) { m.Zone = "\xff" }, sundog.Invalid, []string{"UTF-8"}},
		"expect too big": {func(m *Meta) { m.Expect = MaxExpect + 1 }, sundog.Invalid, []string{"65535"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := largest()
			c.edit(&m)
			err := m.Check()
			require.ErrorIs(t, err, c.kind)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			if c.kind == sundog.TooLarge {
				require.Greater(t, sundog.AsError(err).Used, sundog.AsError(err).Limit)
			}
		})
	}
}

func TestConfigCheck(t *testing.T) {
	good := Config{Self: meta(1, 1), BindAddr: "127.0.0.1:0", Seeds: []string{"a.example:7401"}, Key: make([]byte, 32)}
	require.NoError(t, good.Check())
	for name, edit := range map[string]func(*Config){
		"no boot":   func(c *Config) { c.Self.Boot = 0 },
		"key":       func(c *Config) { c.Key = make([]byte, 17) },
		"label":     func(c *Config) { c.ClusterLabel = strings.Repeat("l", MaxLabel+1) },
		"bind":      func(c *Config) { c.BindAddr = "nowhere" },
		"seed":      func(c *Config) { c.Seeds = []string{"a.example"} },
		"long seed": func(c *Config) { c.Seeds = []string{strings.Repeat("s", 300) + ":1"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			edit(&c)
			require.Error(t, c.Check())
			_, err := Open(t.Context(), c)
			require.Error(t, err)
		})
	}
}

func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.StringMatching(`[a-z0-9.-]{0,40}:[1-9][0-9]{0,3}`)
		m := Meta{
			Node: sundog.NodeID(rapid.Uint64Min(1).Draw(t, "node")), Boot: rapid.Uint64().Draw(t, "boot"),
			Epoch: sundog.Epoch(rapid.Uint64().Draw(t, "epoch")), Protocol: rapid.Uint16().Draw(t, "protocol"),
			Expect: rapid.IntRange(0, MaxExpect).Draw(t, "expect"), Cluster: rapid.SampledFrom([]string{"", clusterA, clusterB}).Draw(t, "cluster"),
			Listen: addr.Draw(t, "listen"), HTTP: rapid.OneOf(addr, rapid.Just("")).Draw(t, "http"), Zone: rapid.StringMatching(`[a-zé-]{0,30}`).Draw(t, "zone"),
		}
		require.NoError(t, m.Check())
		b := m.Append(nil)
		got, err := DecodeMeta(b)
		require.NoError(t, err)
		require.Equal(t, m, got)
		for cut := range b {
			_, err := DecodeMeta(b[:cut])
			require.ErrorIs(t, err, sundog.Corrupt)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(largest().Append(nil))
	f.Add(meta(1, 1).Append(nil))
	f.Add([]byte{metaVersion})
	f.Add([]byte{metaVersion + 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMeta(b)
		if err != nil {
			require.ErrorIs(t, err, sundog.Corrupt)
			return
		}
		again, err := DecodeMeta(m.Append(nil))
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}

func TestWithHost(t *testing.T) {
	require.Equal(t, "10.1.2.3:80", withHost(":80", "10.1.2.3:7401"))
	require.Equal(t, "[::1]:80", withHost(":80", "[::1]:7401"))
	require.Equal(t, "a.example:80", withHost("a.example:80", "10.1.2.3:7401"))
	require.Equal(t, "", withHost("", "10.1.2.3:7401"))
}
