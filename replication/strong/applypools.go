package strong

import (
	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
)

// applyPools brings the tables in line with a pool set. A set as of an older or
// the same catalog index is ignored: proposers are only loosely ordered, the
// catalog is not.
func (m *machine) applyPools(set poolSet) error {
	s := m.state
	if set.catalog <= s.catalog {
		return nil
	}
	next := make(map[sundog.PoolID]*pool, len(set.pools))
	for _, spec := range set.pools {
		p, ok := s.pools[spec.id]
		if !ok {
			var err error
			if p, err = m.openPool(spec); err != nil {
				m.closePools(newIn(next, s.pools))
				return stopReason(err)
			}
		}
		p.spec.Store(&spec)
		next[spec.id] = p
	}
	dropped := newIn(s.pools, next)
	s.pools, s.catalog = next, set.catalog
	m.showPools()
	m.closePools(dropped) // nobody reads them any more; cuts keep theirs open
	if len(dropped) > 0 {
		s.due.compact(s.hasDeadline)
	}
	return nil
}

// newIn returns the pools of a that are not in b.
func newIn(a, b map[sundog.PoolID]*pool) []*pool {
	var only []*pool
	for id, p := range a {
		if b[id] == nil {
			only = append(only, p)
		}
	}
	return only
}

// openPool makes an empty table for the pool under a new incarnation.
func (m *machine) openPool(spec poolSpec) (*pool, error) {
	t, err := table.New(table.Config{
		Arena:       m.arenas.Acquire(spec.id),
		Partition:   m.partition,
		Incarnation: m.newID(),
		Logger:      m.logger,
	})
	if err != nil {
		m.arenas.Release(spec.id)
		return nil, err
	}
	p := &pool{id: spec.id, table: t, release: func() { m.arenas.Release(spec.id) }}
	p.spec.Store(&spec)
	p.hold()
	return p, nil
}

func (m *machine) closePools(pools []*pool) {
	for _, p := range pools {
		p.drop()
	}
}

// showPools publishes the pools to requests.
func (m *machine) showPools() {
	m.guard.publish(&view{catalog: m.state.catalog, pools: m.state.pools})
}

// close frees the tables. Nobody calls Apply, Snapshot or Restore any more.
func (m *machine) close() {
	m.lock <- struct{}{}
	defer m.unlock()
	m.guard.publish(nil)
	for _, p := range sortedPools(m.state.pools) {
		p.retired.Store(true)
		p.drop()
	}
	m.state = newState()
}
