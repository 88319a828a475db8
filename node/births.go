package node

import (
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
)

// births bootstraps groups in their birth step and never again (DESIGN section
// 4). Every member may bootstrap with the committed list, which is the same on
// all. The preferred owner does so at once and the others only when nobody has
// reached them for a while, so that it is the one that is elected and leaders
// are as balanced as the placement; yet a preferred owner that is down holds up
// nothing.
//
// That a group was born here is noted on disk after its log has begun. (That the
// log store as a whole is lost is noticed when the node opens: store.go.)
type births struct {
	hosting *hosting
	pace    time.Duration                  // between looks while a birth is under way
	since   map[sundog.Partition]time.Time // births under way, from when
}

// patience, in heartbeats, is how long the other members wait for the preferred
// owner: an election takes it one to two.
const patience = 2.5

func (b *births) pending() bool { return len(b.since) > 0 }

// step looks after all births that are under way.
func (b *births) step(m *ring.Map) {
	h := b.hosting
	if m.Birth == 0 {
		return
	}
	b.pace = max(10*time.Millisecond, m.Timings.Heartbeat/10)
	if b.since == nil {
		b.since = map[sundog.Partition]time.Time{}
	}
	born := map[datadir.StepKey]uint64{}
	h.each(func(p sundog.Partition, r *strong.Partition) {
		if h.dir.Step(birthKey(p)) > 0 {
			return
		}
		if r.Group().Status().LastIndex > 0 || b.bear(m, p, r) {
			born[birthKey(p)] = uint64(m.Birth)
			delete(b.since, p)
		}
	})
	if len(born) == 0 {
		return
	}
	if err := h.dir.RaiseSteps(born); err != nil {
		h.log.Error("births not noted", "err", err)
	}
}

// bear bootstraps the group if it is time and says whether its log has begun.
func (b *births) bear(m *ring.Map, p sundog.Partition, r *strong.Partition) bool {
	owners := m.Owners(p)
	servers := make([]string, len(owners))
	for i, o := range owners {
		if o.Incarnation != 1 {
			return false // the placement is no longer that of the birth
		}
		servers[i] = o.ServerID()
	}
	first, ok := b.since[p]
	if !ok {
		first = time.Now()
		b.since[p] = first
	}
	waited := time.Since(first)
	if owners[0].Node != b.hosting.self && waited < time.Duration(patience*float64(m.Timings.Heartbeat)) {
		return false
	}
	if err := r.Group().Bootstrap(servers); err != nil {
		b.hosting.log.Error("group not bootstrapped", "partition", p, "err", err)
		return false
	}
	return true
}
