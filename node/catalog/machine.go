package catalog

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog/catalogpb"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

// Result is what Apply answers to one command. Epoch is that of the map after
// the command, also where it was refused.
type Result struct {
	Err   *sundog.Error
	Epoch sundog.Epoch
	Pool  sundog.PoolID // of pool commands
}

// Machine is the catalog's state machine. Only its group's goroutine changes it;
// Map and Start may be called from any.
type Machine struct {
	published atomic.Pointer[ring.Map]
	publish   func(*ring.Map)

	current *ring.Map // state of the group's goroutine

	mu     sync.Mutex // guards starts where they are written, and read by another goroutine
	starts map[sundog.NodeID]start
}

type start struct {
	boot, nonce uint64
}

// NewMachine returns an empty machine. Publish is called with each new map from
// the group's own goroutine, so it only hands off.
func NewMachine(publish func(*ring.Map)) *Machine {
	return &Machine{publish: publish, current: &ring.Map{}, starts: map[sundog.NodeID]start{}}
}

// Map returns the newest committed map that this replica applied, nil before
// the cluster is founded.
func (m *Machine) Map() *ring.Map { return m.published.Load() }

// Start returns the newest start of a node that the cluster has accepted, as far
// as this replica applied; false for a node that never was in it.
func (m *Machine) Start(id sundog.NodeID) (boot, nonce uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.starts[id]
	return s.boot, s.nonce, ok
}

// Apply executes the commands of one entry; see [raftgroup.Machine]. All changes
// of an entry make one new map.
func (m *Machine) Apply(e raftgroup.Entry) []any {
	before := m.current
	results := make([]any, len(e.Commands))
	for i, c := range e.Commands {
		results[i] = m.command(sundog.Epoch(e.Index), c)
	}
	if m.current != before {
		m.release()
	}
	return results
}

func (m *Machine) release() {
	m.published.Store(m.current)
	m.publish(m.current)
}

func (m *Machine) command(epoch sundog.Epoch, raw []byte) Result {
	var c catalogpb.Command
	if err := proto.Unmarshal(raw, &c); err != nil {
		return m.refuse(sundog.Errorf(sundog.Corrupt, "catalog command: %v", err))
	}
	if c.GetVersion() != version {
		return m.refuse(sundog.Errorf(sundog.Invalid, "catalog command of version %d: this release knows %d", c.GetVersion(), version))
	}
	if f := c.GetFound(); f != nil {
		return m.found(epoch, decodeFounding(f))
	}
	if m.current.Cluster == "" {
		return m.refuse(sundog.Errorf(sundog.Unavailable, "the cluster is not founded yet"))
	}
	switch k := c.GetKind().(type) {
	case *catalogpb.Command_NodeUp:
		return m.nodeUp(epoch, decodeStart(k.NodeUp))
	case *catalogpb.Command_PoolCreate:
		return m.poolCreate(epoch, k.PoolCreate)
	case *catalogpb.Command_PoolSet:
		return m.poolSet(epoch, k.PoolSet)
	case *catalogpb.Command_PoolDelete:
		return m.poolDelete(epoch, k.PoolDelete)
	case *catalogpb.Command_Role:
		return m.role(epoch, sundog.NodeID(k.Role.GetNode()), ring.CatalogRole(k.Role.GetRole()))
	}
	return m.refuse(sundog.Errorf(sundog.Invalid, "catalog command without a kind"))
}

func (m *Machine) refuse(err *sundog.Error) Result {
	return Result{Err: err, Epoch: m.current.Epoch}
}

// change makes the next map by editing a shallow copy; edit replaces slices
// rather than writing into them. What would be no valid map is refused.
func (m *Machine) change(epoch sundog.Epoch, edit func(next *ring.Map)) Result {
	next := *m.current
	next.Epoch = epoch
	edit(&next)
	if err := next.Validate(); err != nil {
		return m.refuse(sundog.AsError(err))
	}
	m.current = &next
	return Result{Epoch: epoch}
}

func (m *Machine) found(epoch sundog.Epoch, f Founding) Result {
	if m.current.Cluster == f.Cluster {
		return Result{Epoch: m.current.Epoch}
	}
	if m.current.Cluster != "" {
		return m.refuse(sundog.Errorf(sundog.Conflict, "this is cluster %s, not %s", m.current.Cluster, f.Cluster))
	}
	if !sundog.ValidPartitions(f.Partitions) || f.Timings.Heartbeat <= 0 || f.Cluster == "" {
		return m.refuse(sundog.Errorf(sundog.Invalid, "founding with %d partitions and a heartbeat of %s", f.Partitions, f.Timings.Heartbeat))
	}
	return m.change(epoch, func(next *ring.Map) {
		next.Cluster, next.Partitions, next.Timings = f.Cluster, f.Partitions, f.Timings
		next.Founders = slices.Sorted(slices.Values(f.Founders))
		next.NextPool = 1
	})
}

func (m *Machine) nodeUp(epoch sundog.Epoch, s Start) Result {
	s.Node.Weight = max(1, s.Node.Weight)
	id := s.Node.ID
	if id == 0 {
		return m.refuse(sundog.Errorf(sundog.Invalid, "a node without an id"))
	}
	if err := m.admit(id, s.Node.Boot, s.Nonce); err != nil {
		return m.refuse(err)
	}
	at, known := slices.BinarySearchFunc(m.current.Nodes, id, func(n ring.Node, id sundog.NodeID) int {
		return compare(n.ID, id)
	})
	if known {
		s.Node.Catalog = m.current.Nodes[at].Catalog
		if m.current.Nodes[at] == s.Node && m.starts[id].nonce == s.Nonce {
			return Result{Epoch: m.current.Epoch}
		}
	} else {
		s.Node.Catalog = ring.None
		if err := ring.CheckJoin(m.current, len(m.current.Nodes)+1); err != nil {
			return m.refuse(sundog.AsError(err))
		}
	}
	result := m.change(epoch, func(next *ring.Map) {
		next.Nodes = slices.Clone(next.Nodes)
		if known {
			next.Nodes[at] = s.Node
		} else {
			next.Nodes = slices.Insert(next.Nodes, at, s.Node)
		}
	})
	if result.Err == nil {
		m.mu.Lock()
		m.starts[id] = start{s.Node.Boot, s.Nonce}
		m.mu.Unlock()
	}
	return result
}

// admit refuses a data directory that is behind the newest start of its node
// (restored from a backup) or shares a start with another (cloned).
func (m *Machine) admit(id sundog.NodeID, boot, nonce uint64) *sundog.Error {
	last, ok := m.starts[id]
	switch {
	case !ok || boot > last.boot:
		return nil
	case boot < last.boot:
		return sundog.Errorf(sundog.Conflict, "node %s starts for the %d. time, but the cluster has seen start %d: its data directory is an old copy (cloned or restored?); stop it, and join with an empty directory", id, boot, last.boot)
	case nonce != last.nonce:
		return sundog.Errorf(sundog.Conflict, "node %s was started twice from copies of one data directory (cloned? start %d): stop one, and let it join with an empty directory", id, boot)
	}
	return nil
}

func (m *Machine) role(epoch sundog.Epoch, id sundog.NodeID, role ring.CatalogRole) Result {
	at := slices.IndexFunc(m.current.Nodes, func(n ring.Node) bool { return n.ID == id })
	if at < 0 {
		return m.refuse(sundog.Errorf(sundog.NotFound, "no node %s", id))
	}
	if role > ring.Standby {
		return m.refuse(sundog.Errorf(sundog.Invalid, "catalog role %d", role))
	}
	if m.current.Nodes[at].Catalog == role {
		return Result{Epoch: m.current.Epoch}
	}
	return m.change(epoch, func(next *ring.Map) {
		next.Nodes = slices.Clone(next.Nodes)
		next.Nodes[at].Catalog = role
	})
}

func compare(a, b sundog.NodeID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// startsOf copies the starts for a snapshot, in order, so that equal states
// make equal bytes.
func startsOf(starts map[sundog.NodeID]start) []*catalogpb.Start {
	var out []*catalogpb.Start
	for _, id := range slices.Sorted(maps.Keys(starts)) {
		out = append(out, &catalogpb.Start{Node: uint64(id), Boot: starts[id].boot, Nonce: starts[id].nonce})
	}
	return out
}
