package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/replication/strong"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// mapOf serves MethodMap: the map where the asker's is older, and the leaders of
// the groups that this node has a replica of.
func (i *inspector) mapOf(_ context.Context, _ *rpc.Request, q *rpcpb.MapRequest) (*rpcpb.MapReply, error) {
	m, data, err := i.atlas.Encoded()
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, sundog.Errorf(sundog.Unavailable, "this node is not in a cluster yet")
	}
	reply := &rpcpb.MapReply{Epoch: uint64(m.Epoch)}
	if sundog.Epoch(q.GetHaveEpoch()) < m.Epoch {
		reply.Map = data
	}
	i.hosting.each(func(p sundog.Partition, r *strong.Partition) {
		if st := r.Group().Status(); st.Leader != 0 {
			reply.Leaders = append(reply.Leaders, &rpcpb.Leader{Partition: uint32(p), Node: uint64(st.Leader), Term: st.Term})
		}
	})
	return reply, nil
}

// partitions serves MethodPartitions.
func (i *inspector) partitions(ctx context.Context, _ *rpc.Request, _ *rpcpb.PartitionsRequest) (*rpcpb.PartitionsReply, error) {
	s, err := i.survey(ctx)
	if err != nil {
		return nil, err
	}
	reply := &rpcpb.PartitionsReply{}
	for p := range sundog.Partition(s.m.Partitions) {
		info := &rpcpb.PartitionInfo{Partition: uint32(p)}
		for _, r := range s.m.Owners(p) {
			info.Replicas = append(info.Replicas, uint64(r.Node))
		}
		if id, g := s.leader(raftgroup.PartitionGroup(p)); g != nil {
			info.Leader, info.Term, info.Applied = uint64(id), g.GetTerm(), g.GetApplied()
		}
		reply.Partitions = append(reply.Partitions, info)
	}
	return reply, nil
}

// nodes serves MethodNodes.
func (i *inspector) nodes(ctx context.Context, _ *rpc.Request, _ *rpcpb.NodesRequest) (*rpcpb.NodesReply, error) {
	s, err := i.survey(ctx)
	if err != nil {
		return nil, err
	}
	reply := &rpcpb.NodesReply{}
	for _, n := range s.m.Nodes {
		info := &rpcpb.NodeInfo{
			Id: uint64(n.ID), Listen: n.Listen, Http: n.HTTP, Gossip: n.Gossip, Zone: n.Zone, State: s.state(n.ID),
		}
		for p := range sundog.Partition(len(s.m.Placement)) {
			if s.m.Owners(p).Index(n.ID) >= 0 {
				info.Replicas++
			}
			if id, g := s.leader(raftgroup.PartitionGroup(p)); g != nil && id == n.ID {
				info.Leaders++
			}
		}
		info.Reason = s.unsafeToStop(n.ID)
		info.SafeToStop = info.Reason == ""
		reply.Nodes = append(reply.Nodes, info)
	}
	return reply, nil
}

// state is alive: gossip and the node itself say so; suspect: it is in gossip's
// view but did not answer, or the reverse; dead: neither.
func (s *survey) state(id sundog.NodeID) string {
	answered := s.answers[id] != nil
	switch {
	case answered && s.seen[id]:
		return "alive"
	case answered || s.seen[id]:
		return "suspect"
	}
	return "dead"
}

// unsafeToStop says what would be lost if the node stopped now, "" if nothing.
func (s *survey) unsafeToStop(id sundog.NodeID) string {
	if why := s.withoutQuorum(id, raftgroup.Catalog, catalogVoters(s.m)); why != "" {
		return why
	}
	bad, first := 0, ""
	for p := range sundog.Partition(len(s.m.Placement)) {
		owners := s.m.Owners(p)
		if owners.Index(id) < 0 {
			continue
		}
		var ids []sundog.NodeID
		for _, r := range owners {
			ids = append(ids, r.Node)
		}
		if why := s.withoutQuorum(id, raftgroup.PartitionGroup(p), ids); why != "" {
			if bad == 0 {
				first = why
			}
			bad++
		}
	}
	if bad > 1 {
		return fmt.Sprintf("%s (and %d more)", first, bad-1)
	}
	return first
}

// withoutQuorum says whether a group would have fewer well replicas than a
// majority without the node.
func (s *survey) withoutQuorum(id sundog.NodeID, group raftgroup.GroupID, voters []sundog.NodeID) string {
	if !slices.Contains(voters, id) {
		return ""
	}
	left := 0
	for _, v := range voters {
		if g := s.groups[v][group]; v != id && g != nil && g.GetAlarm() == "" && g.GetLeader() != 0 {
			left++
		}
	}
	if need := len(voters)/2 + 1; left < need {
		return fmt.Sprintf("%s would be left with %d of %d replicas and needs %d", group, left, len(voters), need)
	}
	return ""
}

func catalogVoters(m *ring.Map) []sundog.NodeID {
	var ids []sundog.NodeID
	for _, n := range m.Nodes {
		if n.Catalog == ring.Voter {
			ids = append(ids, n.ID)
		}
	}
	return ids
}
