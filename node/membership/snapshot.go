package membership

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sundog-kv/sundog"
)

// Member is a node as gossip sees it: alive, or suspected and not yet given up.
// Listen and HTTP are complete (host filled in), HTTP may be "".
type Member struct {
	Meta
	Gossip string // host:port
}

// table is the event loop's own: every name that is not gone.
type table struct {
	records map[string]record
}

// apply takes events in and notes what is gone.
func (t *table) apply(events map[string]record, note func(record)) {
	for name, r := range events {
		if r.gone {
			delete(t.records, name)
			note(r)
		} else {
			t.records[name] = r
		}
	}
}

// view builds the snapshot: this node, and of every other id its newest boot,
// sorted by id, without nodes of another cluster. elder is the boot of a newer
// process with this node's own id, 0 for none; stranger is another cluster's id
// of which a node was left out, "" for none.
func (t *table) view(self Member) (members []Member, elder uint64, stranger string) {
	newest := map[sundog.NodeID]Member{}
	for _, r := range t.records {
		m := Member{Meta: r.meta, Gossip: r.gossip}
		switch {
		case m.Node == self.Node:
			if m.Boot > self.Boot {
				elder = max(elder, m.Boot)
			}
			continue
		case foreign(self.Cluster, m.Cluster):
			stranger = m.Cluster
			continue
		}
		if known, ok := newest[m.Node]; !ok || m.Boot > known.Boot {
			newest[m.Node] = m
		}
	}
	newest[self.Node] = self
	members = slices.Collect(maps.Values(newest))
	for i := range members {
		members[i].Listen = withHost(members[i].Listen, members[i].Gossip)
		members[i].HTTP = withHost(members[i].HTTP, members[i].Gossip)
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return members, elder, stranger
}

func doubledByBoot(id sundog.NodeID, own, other uint64) string {
	return fmt.Sprintf("node %s: a process with boot %d of this data directory gossips, this one is boot %d (cloned or restored?)", id, other, own)
}
