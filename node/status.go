package node

import (
	"context"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// surveyTimeout is how long a survey waits for one node.
const surveyTimeout = time.Second

// inspector tells how this node and the others are.
type inspector struct {
	self      sundog.NodeID
	atlas     *atlas
	council   *council
	hosting   *hosting
	memory    *dataplane.Memory
	members   func() []membership.Member
	directory *directory
}

// status serves MethodStatus.
func (i *inspector) status(_ context.Context, _ *rpc.Request, q *rpcpb.StatusRequest) (*rpcpb.StatusReply, error) {
	out := i.local()
	if _, machine := i.council.replica(); machine != nil && q.GetStartOf() != 0 {
		out.StartBoot, out.StartNonce, _ = machine.Start(sundog.NodeID(q.GetStartOf()))
	}
	return out, nil
}

// local is this node's own status.
func (i *inspector) local() *rpcpb.StatusReply {
	out := &rpcpb.StatusReply{
		Epoch: uint64(i.atlas.Epoch()), MemoryUsed: i.memory.Used(), MemoryLimit: i.memory.Limit(),
	}
	if st, ok := i.council.status(); ok {
		g := groupStatus(st)
		if _, machine := i.council.replica(); machine != nil && machine.Map() != nil {
			g.Catalog = uint64(machine.Map().Epoch)
		}
		out.Groups = append(out.Groups, g)
	}
	i.hosting.each(func(p sundog.Partition, r *strong.Partition) {
		st := r.Status()
		g := groupStatus(r.Group().Status())
		g.Catalog, g.Alarm = uint64(st.Catalog), st.Alarm
		out.Groups = append(out.Groups, g)
		for _, pool := range st.Pools {
			out.Usage = append(out.Usage, &rpcpb.PoolUsage{
				Pool: uint64(pool.ID), Partition: uint32(p), Used: pool.Bytes, Keys: pool.Keys, Leading: st.Leading,
			})
		}
	})
	return out
}

func groupStatus(st raftgroup.Status) *rpcpb.GroupStatus {
	g := &rpcpb.GroupStatus{
		Group: uint32(st.ID), Leading: st.Leading, Leader: uint64(st.Leader), Term: st.Term,
		Commit: st.Commit, Applied: st.Applied, LastIndex: st.LastIndex,
		Members: append(append([]string{}, st.Members...), st.Learners...), Voters: st.Members,
		LastContactMs: st.LastContact.Milliseconds(), State: st.State,
	}
	if st.Failure != nil {
		g.Alarm = st.Failure.Error()
	}
	return g
}

// survey is what every node answered about itself at about one moment.
type survey struct {
	m       *ring.Map
	answers map[sundog.NodeID]*rpcpb.StatusReply // of those that answered
	seen    map[sundog.NodeID]bool               // alive, as gossip believes

	groups  map[sundog.NodeID]map[raftgroup.GroupID]*rpcpb.GroupStatus
	leaders map[raftgroup.GroupID]sundog.NodeID
}

// survey asks all nodes of the map.
func (i *inspector) survey(ctx context.Context) (*survey, error) {
	m := i.atlas.Map()
	if m == nil {
		return nil, sundog.Errorf(sundog.Unavailable, "this node is not in a cluster yet")
	}
	s := &survey{m: m, answers: map[sundog.NodeID]*rpcpb.StatusReply{}, seen: map[sundog.NodeID]bool{}}
	for _, member := range i.members() {
		s.seen[member.Node] = true
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var mu sync.Mutex // guards s.answers
	inParallel(heraldWide, len(m.Nodes), func(at int) {
		id := m.Nodes[at].ID
		answer := &rpcpb.StatusReply{}
		if id == i.self {
			answer = i.local()
		} else if !s.seen[id] || i.directory.call(ctx, id, rpc.MethodStatus, &rpcpb.StatusRequest{}, answer) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		s.answers[id] = answer
	})
	s.index()
	return s, nil
}

// index sorts the answers by group.
func (s *survey) index() {
	s.groups = map[sundog.NodeID]map[raftgroup.GroupID]*rpcpb.GroupStatus{}
	s.leaders = map[raftgroup.GroupID]sundog.NodeID{}
	for node, answer := range s.answers {
		groups := make(map[raftgroup.GroupID]*rpcpb.GroupStatus, len(answer.GetGroups()))
		s.groups[node] = groups
		for _, g := range answer.GetGroups() {
			id := raftgroup.GroupID(g.GetGroup())
			groups[id] = g
			if g.GetLeading() && g.GetTerm() > s.groups[s.leaders[id]][id].GetTerm() {
				s.leaders[id] = node
			}
		}
	}
}

// leader returns who leads a group, as the leader itself told: of several that
// claim to, the one of the highest term. 0 and nil when nobody does.
func (s *survey) leader(group raftgroup.GroupID) (sundog.NodeID, *rpcpb.GroupStatus) {
	id := s.leaders[group]
	return id, s.groups[id][group]
}
