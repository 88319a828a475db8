package catalog

import (
	"slices"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog/catalogpb"
	"github.com/sundog-kv/sundog/ring"
)

func (m *Machine) poolCreate(epoch sundog.Epoch, c *catalogpb.PoolCreate) Result {
	spec := decodeSpec(c.GetSpec())
	if err := sundog.CheckPoolName(c.GetName()); err != nil {
		return m.refuse(sundog.AsError(err))
	}
	if old, ok := m.current.PoolByName(c.GetName()); ok {
		return Result{Pool: old.ID, Epoch: m.current.Epoch, Err: existing(old, spec)}
	}
	birth := decodeBirth(c.GetBirth())
	if err := checkSpec(m.current, spec); err != nil {
		return m.refuse(err)
	}
	if m.current.Replicas == 0 {
		if err := checkBirth(m.current, birth, spec.Replicas); err != nil {
			return m.refuse(err)
		}
	}
	id := m.current.NextPool
	res := m.change(epoch, func(next *ring.Map) {
		if next.Replicas == 0 {
			next.Replicas, next.Placement, next.Birth = spec.Replicas, birth, epoch
		}
		next.NextPool = id + 1
		// Ids rise, so appending keeps the order.
		next.Pools = append(slices.Clone(next.Pools), ring.Pool{ID: id, Name: c.GetName(), Spec: spec, Created: epoch})
	})
	if res.Err == nil {
		res.Pool = id
	}
	return res
}

// existing says how a pool that is there already differs from the one asked for.
func existing(old ring.Pool, spec sundog.PoolSpec) *sundog.Error {
	if old.Spec == spec {
		return sundog.Errorf(sundog.Exists, "pool %q exists already, with this same spec", old.Name)
	}
	return sundog.Errorf(sundog.Exists, "pool %q exists already, with another spec", old.Name)
}

// checkSpec is what a spec must satisfy in this cluster.
func checkSpec(current *ring.Map, spec sundog.PoolSpec) *sundog.Error {
	if err := spec.Validate(); err != nil {
		return sundog.AsError(err)
	}
	if current.Replicas != 0 && spec.Replicas != current.Replicas {
		return sundog.Errorf(sundog.Invalid, "--replicas %d: the strong pools of this cluster have %d replicas, fixed by the first one; say --replicas %d or leave it out", spec.Replicas, current.Replicas, current.Replicas)
	}
	return nil
}

// checkBirth refuses a placement that is not whole: every partition on as many
// distinct, registered nodes as there are replicas.
func checkBirth(current *ring.Map, birth []ring.Replicas, replicas int) *sundog.Error {
	if len(birth) != current.Partitions {
		return sundog.Errorf(sundog.Invalid, "a placement of %d partitions, where the cluster has %d", len(birth), current.Partitions)
	}
	for p, row := range birth {
		if len(row) != replicas {
			return sundog.Errorf(sundog.Invalid, "partition %d placed on %d nodes, not %d", p, len(row), replicas)
		}
		for i, r := range row {
			if _, ok := current.Node(r.Node); !ok || r.Incarnation == 0 {
				return sundog.Errorf(sundog.Invalid, "partition %d placed on %s, which is no replica of a known node", p, r.ServerID())
			}
			if slices.ContainsFunc(row[:i], func(q ring.Replica) bool { return q.Node == r.Node }) {
				return sundog.Errorf(sundog.Invalid, "partition %d placed twice on node %s", p, r.Node)
			}
		}
	}
	return nil
}

func (m *Machine) poolSet(epoch sundog.Epoch, c *catalogpb.PoolSet) Result {
	at, err := m.poolIndex(c.GetName())
	if err != nil {
		return m.refuse(err)
	}
	old := m.current.Pools[at]
	spec := changed(old.Spec, c)
	if err := checkSpec(m.current, spec); err != nil {
		return m.refuse(err)
	}
	res := Result{Epoch: m.current.Epoch}
	if old.Spec != spec {
		res = m.change(epoch, func(next *ring.Map) {
			next.Pools = slices.Clone(next.Pools)
			next.Pools[at].Spec = spec
		})
	}
	res.Pool = old.ID
	return res
}

func (m *Machine) poolDelete(epoch sundog.Epoch, c *catalogpb.PoolDelete) Result {
	at, err := m.poolIndex(c.GetName())
	if err != nil {
		return m.refuse(err)
	}
	id := m.current.Pools[at].ID
	res := m.change(epoch, func(next *ring.Map) {
		next.Pools = slices.Delete(slices.Clone(next.Pools), at, at+1)
	})
	res.Pool = id
	return res
}

func (m *Machine) poolIndex(name string) (int, *sundog.Error) {
	at := slices.IndexFunc(m.current.Pools, func(p ring.Pool) bool { return p.Name == name })
	if at < 0 {
		return 0, sundog.Errorf(sundog.NotFound, "no pool %.200q", name)
	}
	return at, nil
}
