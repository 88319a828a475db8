package node

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// atlas keeps the newest committed map that this node knows. Maps come from the
// own catalog replica, from pushes and from pulls, in any order; only newer ones
// of the own cluster are taken.
type atlas struct {
	current atomic.Pointer[ring.Map]
	encoded atomic.Pointer[encodedMap]
	log     *slog.Logger
	// bind makes this node one of the cluster's before its first map is taken;
	// an error refuses the map.
	bind func(cluster string) error

	mu      sync.Mutex    // guards changed, and orders swaps
	changed chan struct{} // closed at the next change
}

func newAtlas(bind func(cluster string) error, log *slog.Logger) *atlas {
	return &atlas{bind: bind, log: log, changed: make(chan struct{})}
}

// Map returns the newest map, nil while none is known.
func (a *atlas) Map() *ring.Map { return a.current.Load() }

// Epoch returns the newest map's epoch, 0 while none is known.
func (a *atlas) Epoch() sundog.Epoch {
	if m := a.current.Load(); m != nil {
		return m.Epoch
	}
	return 0
}

// encodedMap is a map with its bytes.
type encodedMap struct {
	m    *ring.Map
	data []byte
}

// Encoded returns the newest map and its bytes, which are made once a map and
// must not be changed; nil and nil while none is known.
func (a *atlas) Encoded() (*ring.Map, []byte, error) {
	m := a.current.Load()
	if m == nil {
		return nil, nil, nil
	}
	if e := a.encoded.Load(); e != nil && e.m == m {
		return m, e.data, nil
	}
	data, err := m.Marshal()
	if err != nil {
		return m, nil, err
	}
	a.encoded.Store(&encodedMap{m, data})
	return m, data, nil
}

// Changed returns a channel that is closed when the map after the one that is
// current now arrives. Take the channel first, then the map.
func (a *atlas) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Offer takes m if it is newer than what is known and says whether it did. A map
// of another cluster is refused.
func (a *atlas) Offer(m *ring.Map) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.current.Load()
	switch {
	case m == nil || m.Cluster == "":
		return false, sundog.Errorf(sundog.Invalid, "a map without a cluster")
	case old != nil && old.Cluster != m.Cluster:
		return false, wrongCluster(old.Cluster, m.Cluster)
	case old != nil && old.Epoch >= m.Epoch:
		return false, nil
	}
	if old == nil {
		if err := a.bind(m.Cluster); err != nil {
			return false, err
		}
	}
	a.current.Store(m)
	close(a.changed)
	a.changed = make(chan struct{})
	a.log.Debug("new map", "epoch", m.Epoch, "nodes", len(m.Nodes), "pools", len(m.Pools))
	return true, nil
}

// wrongCluster refuses a peer, a map or a directory of another cluster.
func wrongCluster(own, other string) *sundog.Error {
	return sundog.Errorf(sundog.Conflict, "this node is of cluster %s, the other side of cluster %s: check --join, or the data directory", own, other)
}
