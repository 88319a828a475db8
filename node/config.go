package node

import (
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/membership"
)

// Limits of the configuration.
const (
	// MaxZone is the longest zone label in bytes. Zone, addresses and ids travel
	// in gossip metadata, of which memberlist carries 512 bytes.
	MaxZone = 64
	// MaxAdvertise is the longest advertised host name in bytes.
	MaxAdvertise = 128
	// MaxBootstrap is the largest number of founders.
	MaxBootstrap = 1000
	// MinMemory is the smallest node memory in bytes.
	MinMemory = 8 << 20
	// MinSecret is the shortest cluster secret in bytes.
	MinSecret = 16
)

// Config is what an operator chooses for a node. The zero value of a field is
// its default, as its comment says; Data and one of Join, BootstrapExpect or a
// data directory that is in a cluster already are needed.
type Config struct {
	Data string // data directory, made when it is not there

	Listen    string // host:port of data and control; default ":7400"; port 0 asks the kernel
	Gossip    string // host:port of gossip, TCP and UDP; default ":7401"
	HTTP      string // host:port of the admin pages; default ":7402"
	Advertise string // host that others reach this node by; default: the bound host, or the first private address

	Join            []string // gossip addresses of members to join by
	BootstrapExpect int      // found a cluster together with this many nodes, 0 never
	Partitions      int      // P of a cluster that is founded here; default 32
	Zone            string   // failure domain, for placement
	Memory          int64    // bytes for tables; default half of the machine's
	Fabric          string   // "auto" or "tcp" in this release; default "auto"

	Secret    []byte // the cluster's secret; without one everything stays on loopback
	GossipKey []byte // 16, 24 or 32 bytes; default: derived from Secret, none without

	PortsFile string // write the bound addresses here as JSON
	Pprof     bool   // serve /debug/pprof

	Timings sundog.Timings    // of a cluster that is founded here; default [sundog.DefaultTimings]
	Pace    membership.Timing // of gossip and failure detection; default [membership.LAN]
	Logger  *slog.Logger      // nil: no logs
}

// withDefaults fills what is zero. The result still needs validate.
func (c Config) withDefaults() Config {
	set := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	set(&c.Listen, ":7400")
	set(&c.Gossip, ":7401")
	set(&c.HTTP, ":7402")
	set(&c.Fabric, "auto")
	if c.Partitions == 0 {
		c.Partitions = 32
	}
	if c.Memory == 0 {
		c.Memory = max(MinMemory, machineMemory()/2)
	}
	if c.Timings.Heartbeat == 0 {
		c.Timings = sundog.DefaultTimings()
	}
	if c.Timings.Lease == 0 {
		c.Timings.Lease = c.Timings.Heartbeat / 2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.Secret) == 0 {
		// Nothing proves who a peer is, so nothing may come from elsewhere.
		for _, addr := range []*string{&c.Listen, &c.Gossip, &c.HTTP} {
			if strings.HasPrefix(*addr, ":") {
				*addr = "127.0.0.1" + *addr
			}
		}
	}
	return c
}

// Validate says what is wrong with the configuration and what to write instead.
// The error is of kind [sundog.Invalid], or [sundog.Denied] where only a secret
// is missing.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Data == "" {
		return sundog.Errorf(sundog.Invalid, "no data directory: say --data DIR")
	}
	if err := c.validateAddresses(); err != nil {
		return err
	}
	if err := c.validateCluster(); err != nil {
		return err
	}
	switch {
	case c.Memory < MinMemory:
		return sundog.Errorf(sundog.Invalid, "memory of %d bytes: say --memory with %d MiB or more", c.Memory, MinMemory>>20)
	case c.Fabric == "shm" || c.Fabric == "ofi" || strings.HasPrefix(c.Fabric, "ofi:"):
		return sundog.Errorf(sundog.Invalid, "fabric %s: not in this release; say --fabric auto", c.Fabric)
	case c.Fabric != "auto" && c.Fabric != "tcp":
		return sundog.Errorf(sundog.Invalid, "fabric %q: say --fabric auto", c.Fabric)
	case c.Timings.Heartbeat < 20*time.Millisecond:
		return sundog.Errorf(sundog.Invalid, "heartbeat of %s: use 20ms or more", c.Timings.Heartbeat)
	case c.Timings.Lease <= 0 || c.Timings.Lease > c.Timings.Heartbeat/2:
		return sundog.Errorf(sundog.Invalid, "lease of %s: use more than 0 and at most half of the heartbeat (%s)", c.Timings.Lease, c.Timings.Heartbeat/2)
	}
	return nil
}

func (c Config) validateAddresses() error {
	for _, a := range []struct{ flag, addr string }{
		{"--listen", c.Listen}, {"--gossip", c.Gossip}, {"--http", c.HTTP},
	} {
		host, err := checkHostPort(a.flag, a.addr, true)
		if err != nil {
			return err
		}
		if len(c.Secret) == 0 && !isLoopback(host) {
			return needSecret(a.flag, a.addr)
		}
	}
	if strings.ContainsAny(c.Advertise, ": \t") && !isIPv6(c.Advertise) {
		return sundog.Errorf(sundog.Invalid, "--advertise %q: give a host name or an address without a port", c.Advertise)
	}
	if len(c.Advertise) > MaxAdvertise {
		return sundog.Errorf(sundog.Invalid, "--advertise of %d bytes: use at most %d, it travels in gossip", len(c.Advertise), MaxAdvertise)
	}
	if c.Advertise != "" && len(c.Secret) == 0 && !isLoopback(c.Advertise) {
		return needSecret("--advertise", c.Advertise)
	}
	for _, seed := range c.Join {
		host, err := checkHostPort("--join", seed, false)
		if err != nil {
			return err
		}
		if len(c.Secret) == 0 && !isLoopback(host) {
			return needSecret("--join", seed)
		}
	}
	return nil
}

func (c Config) validateCluster() error {
	switch {
	case !sundog.ValidPartitions(c.Partitions):
		return sundog.Errorf(sundog.Invalid, "%d partitions: say --partitions with a power of two from 1 to %d, at least 4 times the nodes ever expected", c.Partitions, sundog.Slots)
	case c.BootstrapExpect < 0 || c.BootstrapExpect > MaxBootstrap:
		return sundog.Errorf(sundog.Invalid, "--bootstrap-expect %d: say how many nodes found the cluster together, 1 to %d", c.BootstrapExpect, MaxBootstrap)
	case len(c.Zone) > MaxZone:
		return sundog.Errorf(sundog.Invalid, "--zone of %d bytes: use at most %d, it travels in gossip", len(c.Zone), MaxZone)
	case strings.ContainsFunc(c.Zone, func(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }):
		return sundog.Errorf(sundog.Invalid, "--zone %q: use printable characters", c.Zone)
	case len(c.Secret) > 0 && len(c.Secret) < MinSecret:
		return sundog.Errorf(sundog.Invalid, "secret of %d bytes: use at least %d, for instance the output of: head -c 32 /dev/urandom | base64", len(c.Secret), MinSecret)
	}
	switch len(c.GossipKey) {
	case 0, 16, 24, 32:
		return nil
	}
	return sundog.Errorf(sundog.Invalid, "gossip key of %d bytes: use 16, 24 or 32", len(c.GossipKey))
}

// needSecret refuses an address that others can reach while nothing proves who
// they are (DESIGN section 13: node methods need a proved identity).
func needSecret(flag, addr string) error {
	return sundog.Errorf(sundog.Denied, "%s %s is not loopback and there is no cluster secret: give all nodes the same one with --secret-file FILE, or use 127.0.0.1", flag, addr)
}

// checkHostPort parses host:port and returns the host.
func checkHostPort(flag, addr string, zeroPort bool) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", sundog.Errorf(sundog.Invalid, "%s %q: want HOST:PORT or :PORT", flag, addr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !zeroPort {
		return "", sundog.Errorf(sundog.Invalid, "%s %q: the port is a number from 1 to 65535", flag, addr)
	}
	if !zeroPort && host == "" {
		return "", sundog.Errorf(sundog.Invalid, "%s %q: the host is missing", flag, addr)
	}
	return host, nil
}

// isLoopback says whether a host is this machine only. Names other than
// localhost are not looked up: their meaning may change.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func isIPv6(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is6()
}
