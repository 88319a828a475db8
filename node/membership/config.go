package membership

import (
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/sundog-kv/sundog"
)

// MaxLabel is the longest cluster label in bytes; it travels with every packet.
const MaxLabel = 64

// defaultLabel keeps other users of memberlist on a shared network apart.
const defaultLabel = "sundog"

// Config is what a node gives to its membership.
type Config struct {
	Self Meta // what to tell the others at first; Listen must be bound already

	BindAddr      string   // host:port, UDP and TCP on one port; port 0 asks the kernel for one that is free for both
	AdvertiseHost string   // IP or name the others reach this node by; "" is the bound host, or the first private address
	Seeds         []string // host:port of members, tried for ever while they are not in the view
	// Peers returns addresses (host:port) known from earlier runs, tried like
	// seeds; nil for none. Called from one goroutine.
	Peers func() []string

	Key          []byte // 16, 24 or 32 bytes: encrypt and authenticate all gossip; nil for none
	ClusterLabel string // nodes of another label are not heard at all; "" is "sundog"

	Transport memberlist.Transport // nil binds BindAddr; tests bring their own (package memnet)
	Timing    Timing               // zero is LAN()
	Logger    *slog.Logger         // nil discards
}

// Check says what is wrong with the configuration before anything is bound:
// TooLarge with both sizes for what is too long, Invalid for the rest.
func (c Config) Check() error {
	if err := c.Self.Check(); err != nil {
		return err
	}
	if c.Self.Boot == 0 {
		return sundog.Errorf(sundog.Invalid, "gossip metadata: no boot counter")
	}
	switch len(c.Key) {
	case 0, 16, 24, 32:
	default:
		return sundog.Errorf(sundog.Invalid, "gossip key of %d bytes: use 16, 24 or 32", len(c.Key))
	}
	if err := checkText("cluster label", c.ClusterLabel, MaxLabel); err != nil {
		return err
	}
	if c.Transport == nil {
		if _, _, err := net.SplitHostPort(c.BindAddr); err != nil {
			return sundog.Errorf(sundog.Invalid, "gossip address %q: want host:port", c.BindAddr)
		}
	}
	for _, s := range c.Seeds {
		if err := checkAddress("seed", s); err != nil {
			return err
		}
	}
	return nil
}

// Timing is the pace of failure detection and healing.
type Timing struct {
	Probe        time.Duration // each node probes one other this often
	ProbeTimeout time.Duration // no direct answer within it: ask others to probe
	Gossip       time.Duration // between rounds of rumours
	PushPull     time.Duration // between full exchanges with a random member
	Stream       time.Duration // deadline of one full exchange, dialling included
	Forget       time.Duration // how long a dead or left name is remembered
	Reclaim      time.Duration // a dead name (one boot of one node) may change its address after this
	Rejoin       time.Duration // longest pause between attempts to meet seeds, peers and lost members
	Leave        time.Duration // how long Close waits for the others to be told

	SuspicionMult    int // a suspect has SuspicionMult × max(1, log10 n) × Probe to refute, confirmed by enough others
	SuspicionMaxMult int // and up to this many times longer when nobody confirms (from four nodes on)
}

// LAN is the default: memberlist's own figures for one network, with full
// exchanges six times as often (they are what completes a view when many join
// in one instant; the library halves the pace above 32 nodes) and with streams
// that give up sooner, so that one stopped member delays no join.
func LAN() Timing {
	return Timing{
		Probe: time.Second, ProbeTimeout: 500 * time.Millisecond,
		Gossip: 200 * time.Millisecond, PushPull: 5 * time.Second, Stream: 3 * time.Second,
		Forget: 30 * time.Second, Reclaim: 10 * time.Second, Rejoin: 10 * time.Second, Leave: 2 * time.Second,
		SuspicionMult: 4, SuspicionMaxMult: 6,
	}
}

// Paced is LAN with every period in proportion to a probe interval; Paced(100 ms)
// notices a death in half a second and suits tests on one machine.
func Paced(probe time.Duration) Timing {
	t := LAN()
	scale := func(d *time.Duration) { *d = time.Duration(float64(*d) * probe.Seconds()) }
	for _, d := range []*time.Duration{&t.Probe, &t.ProbeTimeout, &t.Gossip, &t.PushPull, &t.Forget, &t.Reclaim, &t.Rejoin} {
		scale(d)
	}
	return t
}

func (t Timing) orDefault() Timing {
	if t == (Timing{}) {
		return LAN()
	}
	return t
}

// library turns the configuration into memberlist's.
func (c Config) library() *memberlist.Config {
	ml := memberlist.DefaultLANConfig()
	t := c.Timing
	ml.Name = gossipName(c.Self)
	ml.Label = c.ClusterLabel
	ml.SecretKey = c.Key
	ml.Transport = c.Transport
	ml.ProbeInterval, ml.ProbeTimeout = t.Probe, t.ProbeTimeout
	ml.GossipInterval, ml.PushPullInterval = t.Gossip, t.PushPull
	ml.TCPTimeout = t.Stream
	ml.GossipToTheDeadTime = t.Forget
	ml.DeadNodeReclaimTime = t.Reclaim
	ml.SuspicionMult, ml.SuspicionMaxTimeoutMult = t.SuspicionMult, t.SuspicionMaxMult
	ml.QueueCheckInterval = max(t.PushPull, time.Second)
	return ml
}
