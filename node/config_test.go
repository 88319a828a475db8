package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

func TestConfigValidate(t *testing.T) {
	secret := []byte("0123456789abcdef")
	good := Config{Data: "d", Listen: "127.0.0.1:0"}
	tests := []struct {
		name string
		edit func(*Config)
		kind sundog.Kind
		says []string
	}{
		{"defaults", func(*Config) {}, 0, nil},
		{"any interface with a secret", func(c *Config) { c.Listen, c.Gossip, c.HTTP, c.Secret = "0.0.0.0:1", ":2", ":3", secret }, 0, nil},
		{"no directory", func(c *Config) { c.Data = "" }, sundog.Invalid, []string{"--data"}},
		{"any interface without", func(c *Config) { c.Listen = "0.0.0.0:7400" }, sundog.Denied, []string{"--listen", "--secret-file", "127.0.0.1"}},
		{"gossip elsewhere without", func(c *Config) { c.Gossip = "10.0.0.1:7401" }, sundog.Denied, []string{"--gossip", "--secret-file"}},
		{"advertise elsewhere without", func(c *Config) { c.Advertise = "db1.example" }, sundog.Denied, []string{"--advertise", "--secret-file"}},
		{"join elsewhere without", func(c *Config) { c.Join = []string{"10.0.0.1:7401"} }, sundog.Denied, []string{"--join", "--secret-file"}},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, sundog.Invalid, []string{"--listen", "HOST:PORT"}},
		{"port too large", func(c *Config) { c.HTTP = "127.0.0.1:70000" }, sundog.Invalid, []string{"--http", "65535"}},
		{"seed without host", func(c *Config) { c.Join = []string{":7401"} }, sundog.Invalid, []string{"--join", "host"}},
		{"seed with port 0", func(c *Config) { c.Join = []string{"127.0.0.1:0"} }, sundog.Invalid, []string{"--join"}},
		{"advertise with port", func(c *Config) { c.Advertise = "127.0.0.1:7400" }, sundog.Invalid, []string{"--advertise", "without a port"}},
		{"advertise IPv6", func(c *Config) { c.Advertise = "::1" }, 0, nil},
		{"partitions", func(c *Config) { c.Partitions = 33 }, sundog.Invalid, []string{"power of two", "--partitions"}},
		{"expect one", func(c *Config) { c.BootstrapExpect = 1 }, 0, nil},
		{"long zone", func(c *Config) { c.Zone = strings.Repeat("z", MaxZone+1) }, sundog.Invalid, []string{"--zone", "64"}},
		{"zone with a newline", func(c *Config) { c.Zone = "a\nb" }, sundog.Invalid, []string{"--zone"}},
		{"long host", func(c *Config) { c.Secret = secret; c.Advertise = strings.Repeat("h", MaxAdvertise+1) }, sundog.Invalid, []string{"--advertise", "128"}},
		{"short secret", func(c *Config) { c.Secret = []byte("abc") }, sundog.Invalid, []string{"16"}},
		{"gossip key", func(c *Config) { c.GossipKey = make([]byte, 17) }, sundog.Invalid, []string{"16, 24 or 32"}},
		{"little memory", func(c *Config) { c.Memory = 1 << 20 }, sundog.Invalid, []string{"--memory"}},
		{"fabric", func(c *Config) { c.Fabric = "shm" }, sundog.Invalid, []string{"not in this release"}},
		{"fabric unknown", func(c *Config) { c.Fabric = "x" }, sundog.Invalid, []string{"--fabric auto"}},
		{"heartbeat", func(c *Config) { c.Timings.Heartbeat = time.Millisecond }, sundog.Invalid, []string{"heartbeat"}},
		{"lease", func(c *Config) { c.Timings = sundog.Timings{Heartbeat: time.Second, Lease: time.Second} }, sundog.Invalid, []string{"lease"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.edit(&c)
			err := c.Validate()
			require.Equal(t, tt.kind, sundog.KindOf(err), "%v", err)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func TestParams(t *testing.T) {
	want := sundog.DefaultTimings()
	p, got, err := parseParams(params(64, want))
	require.NoError(t, err)
	require.Equal(t, 64, p)
	require.Equal(t, want, got)
	for _, bad := range []string{"", "partitions=3 heartbeat=1ns lease=1ns", "partitions=4 heartbeat=-1ns lease=1ns", "x"} {
		_, _, err := parseParams(bad)
		require.Equal(t, sundog.Corrupt, sundog.KindOf(err), bad)
	}
}
