package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/node/founding"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
)

// Node is one running server.
type Node struct {
	cfg   Config
	log   *slog.Logger
	addrs Addrs

	dir     *datadir.Dir
	fence   *datadir.PeerFence
	guard   *guard
	metrics *metrics
	memory  *dataplane.Memory
	arenas  *replication.Arenas
	raft    *raftgroup.Metrics
	rpc     *rpc.Metrics
	store   *raftgroup.Store
	mux     *raftgroup.Mux
	atlas   *atlas
	members *membership.Membership
	conns   *rpc.Pool
	engines *replication.Engines

	directory *directory
	puller    *puller
	council   *council
	hosting   *hosting
	writer    *writer
	registrar *registrar
	founder   *founding.Founder
	inspector *inspector
	probes    *probes
	steward   *steward
	herald    *herald

	councilErr atomic.Pointer[sundog.Error] // why the catalog replica does not open

	life  context.Context // ends first in Close
	end   context.CancelFunc
	loops sync.WaitGroup
	leave bool // tell the others on Close

	steps []step // what Close undoes, in order of construction
	once  sync.Once
	err   error // of Close
}

// step is one thing that was started and how it is ended.
type step struct {
	name  string
	close func() error
}

// Open starts a node and returns when its ports are bound and it looks for the
// others; Wait tells when it serves. ctx bounds Open only, its values stay.
//
// Errors: what [Config.Validate] says; Conflict for a port or a data directory
// that is in use; Corrupt and Invalid for a directory that cannot be used. What
// had been started is ended again.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg.withDefaults(), leave: true}
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.build(ctx); err != nil {
		_ = n.Close() // err is the one to tell
		return nil, err
	}
	return n, nil
}

// build constructs bottom-up: who this node is, where its data lies, how it is
// reached, who the others are, what it knows, what it does, how it answers.
func (n *Node) build(ctx context.Context) error {
	var listener, admin net.Listener
	for _, build := range []func() error{
		// The directory first: its lock keeps a second process from everything
		// below, and its boot counter must be on disk before anybody hears of us.
		n.openDirectory,
		n.openMetrics,
		// The log store before the ports: a long replay must not look like a
		// node that hangs.
		n.openStore,
		// Ports before gossip, which tells the others the numbers.
		func() (err error) { listener, err = n.listen(ctx, "--listen", n.cfg.Listen); return err },
		func() (err error) { admin, err = n.listen(ctx, "--http", n.cfg.HTTP); return err },
		func() error { return n.openMembership(ctx, listener.Addr(), admin.Addr()) },
		func() error { return n.openTransport() },
		func() error { n.openServices(); return nil },
		// The admin pages before the loops, so that readiness can be asked from
		// the first moment; the server last, when everything it calls is there.
		func() error { return n.openAdmin(admin) },
		func() error { return n.openServer(listener) },
		n.startLoops,
		func() error { return n.writePorts() },
	} {
		if err := build(); err != nil {
			return err
		}
	}
	n.log.Info("node started", "listen", n.addrs.Listen, "gossip", n.addrs.Gossip, "http", n.addrs.HTTP, "boot", n.dir.Boot())
	return nil
}

// opened notes what Close is to end.
func (n *Node) opened(name string, end func() error) {
	n.steps = append(n.steps, step{name, end})
}

func (n *Node) openDirectory() error {
	dir, err := datadir.Open(n.cfg.Data, time.Now())
	if err != nil {
		return err
	}
	n.opened("data directory", dir.Close)
	n.dir = dir
	n.log = n.cfg.Logger.With("node", dir.ID().String())
	n.fence = datadir.NewPeerFence()
	n.atlas = newAtlas(n.bind, n.log)
	return n.fence.Check(dir.ID(), dir.Boot(), dir.Nonce())
}

func (n *Node) openMetrics() (err error) {
	n.metrics = newMetrics()
	if n.raft, err = raftgroup.NewMetrics(n.metrics.registry); err != nil {
		return sundog.Errorf(sundog.Internal, "metrics: %w", err)
	}
	if n.rpc, err = rpc.NewMetrics(n.metrics.registry); err != nil {
		return sundog.Errorf(sundog.Internal, "metrics: %w", err)
	}
	n.memory = dataplane.NewMemory(n.cfg.Memory)
	n.arenas = replication.NewArenas(n.memory, n.log)
	n.engines = &replication.Engines{}
	return nil
}

func (n *Node) listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := listen(ctx, flag, addr)
	if err != nil {
		return nil, err
	}
	n.opened("listener "+flag, func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return l, nil
}

func (n *Node) openMembership(ctx context.Context, data, admin net.Addr) error {
	key, err := gossipKey(n.cfg)
	if err != nil {
		return err
	}
	n.addrs.Listen, n.addrs.HTTP = advertised(n.cfg.Advertise, data), advertised(n.cfg.Advertise, admin)
	m, err := membership.Open(ctx, membership.Config{
		Self: membership.Meta{
			Node: n.dir.ID(), Boot: n.dir.Boot(), Protocol: 1, Expect: n.cfg.BootstrapExpect,
			Cluster: n.dir.Cluster(), Listen: n.addrs.Listen, HTTP: n.addrs.HTTP, Zone: n.cfg.Zone,
		},
		BindAddr: n.cfg.Gossip, AdvertiseHost: n.cfg.Advertise, Seeds: n.cfg.Join, Peers: n.knownPeers,
		Key: key, Timing: n.cfg.Pace, Logger: n.log,
	})
	if sundog.KindOf(err) == sundog.Conflict {
		return sundog.Errorf(sundog.Conflict, "--gossip %s: another process has this port: choose another with --gossip HOST:PORT, or port 0 for any (%w)", n.cfg.Gossip, err)
	}
	if err != nil {
		return err
	}
	n.opened("gossip", func() error {
		if n.leave {
			return m.Close()
		}
		return m.Kill()
	})
	n.members, n.addrs.Gossip = m, m.Addr()
	return nil
}

// openTransport makes the connections to other nodes; they are dialled when
// there is something to say.
func (n *Node) openTransport() error {
	dial := rpc.DialConfig{Identify: n.identity, Secret: n.cfg.Secret, Logger: n.log, Metrics: n.rpc}
	n.guard = newGuard(n.life, n.dir.ID(), n.dir.Boot(), n.fence, n.atlas, n.cluster, dial)
	dial.Admit = n.guard.outbound
	n.conns = rpc.NewPool(dial)
	n.opened("connections", n.conns.Close)
	n.directory = &directory{
		atlas: n.atlas, members: n.members.Members, conns: n.conns, dial: dial, guard: n.guard,
		hear: func(e sundog.Epoch) { n.puller.hear(e) }, log: n.log,
	}
	n.mux = raftgroup.NewMux(raftgroup.MuxConfig{
		Self: n.dir.ID(), Logger: n.log, Metrics: n.raft,
		Dial: func(ctx context.Context, id sundog.NodeID, lane string) (net.Conn, error) {
			return n.directory.lane(ctx, id, lanePrefix+lane)
		},
	})
	n.opened("raft transport", n.mux.Close)
	return nil
}

func (n *Node) openAdmin(l net.Listener) error {
	admin := serveAdmin(l, adminPages{ready: n.readiness, registry: n.metrics.registry, pprof: n.cfg.Pprof}, n.log)
	n.opened("admin pages", admin.Close)
	return nil
}

func (n *Node) openServer(l net.Listener) error {
	server := rpc.NewServer(rpc.ServerConfig{
		Handler: n.handler(), Epoch: n.atlas.Epoch, Identity: n.identity, Secret: n.cfg.Secret,
		Admit: n.guard.inbound, Upgrade: n.upgrade, Logger: n.log, Metrics: n.rpc,
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); err != nil {
			n.log.Error("the data port stopped", "err", err)
		}
	})
	n.opened("data port", func() error {
		err := server.Close()
		serving.Wait()
		return err
	})
	return nil
}

func (n *Node) writePorts() error {
	if n.cfg.PortsFile == "" {
		return nil
	}
	return writePorts(n.cfg.PortsFile, n.addrs)
}

// Addrs returns the addresses that others reach this node by.
func (n *Node) Addrs() Addrs { return n.addrs }

// ID returns the node's id.
func (n *Node) ID() sundog.NodeID { return n.dir.ID() }

// Close ends the node, top-down: its loops first, so that nothing new begins,
// then what others see of it (the data port, the admin pages), its word to the
// others that it leaves, its groups, and at last store and directory. It returns
// when everything is joined; more calls return the same.
func (n *Node) Close() error {
	n.once.Do(func() {
		n.end()
		n.loops.Wait()
		var errs []error
		for i := len(n.steps) - 1; i >= 0; i-- {
			if err := n.steps[i].close(); err != nil {
				errs = append(errs, sundog.Errorf(sundog.Internal, "close %s: %w", n.steps[i].name, err))
			}
		}
		n.err = errors.Join(errs...)
	})
	return n.err
}

// kill ends the node without a word to the others, as a crash would: they have
// to notice by themselves.
func (n *Node) kill() error {
	n.leave = false
	return n.Close()
}
