package node

import (
	"context"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// Pace at which a new pool's partitions are looked at until all are ready.
const (
	readyPollMin = 20 * time.Millisecond
	readyPollMax = 250 * time.Millisecond
)

// poolService serves the pool methods.
type poolService struct {
	atlas     *atlas
	council   *council
	writer    *writer
	puller    *puller
	inspector *inspector
	alive     func(sundog.NodeID) bool
}

// create serves MethodPoolCreate: it commits the pool, and answers when every
// partition's leader has it, or when the request's time ends: the pool is made
// then, whatever is ready of it. Exists for a name that is taken, also by a pool
// of the same spec.
func (s *poolService) create(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolCreateRequest) (*rpcpb.PoolCreateReply, error) {
	spec := rpc.SpecOf(q.GetSpec()).WithDefaults()
	if err := sundog.CheckPoolName(q.GetName()); err != nil {
		return nil, err
	}
	if err := s.fillReplicas(&spec, q.GetSpec().GetReplicas() == 0); err != nil {
		return nil, err
	}
	reply := &rpcpb.PoolCreateReply{}
	doubt := false
	err := s.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodPoolCreate, again: true, proof: sundog.Exists, doubt: &doubt, reply: reply,
		req: &rpcpb.PoolCreateRequest{Name: q.GetName(), Spec: rpc.SpecMessage(spec), Forwarded: true},
		here: func(ctx context.Context) error {
			result, err := s.commitPool(ctx, q.GetName(), spec)
			reply.Id, reply.Epoch = uint64(result.Pool), uint64(result.Epoch)
			return err
		},
	})
	if doubt && sundog.KindOf(err) == sundog.Exists {
		err = s.adopt(ctx, q.GetName(), spec, reply)
	}
	if err != nil {
		return nil, err
	}
	reply.Spec = rpc.SpecMessage(spec)
	if !q.GetForwarded() {
		ready, total := s.awaitReady(ctx, sundog.Epoch(reply.GetEpoch()))
		reply.PartitionsReady, reply.Partitions = uint32(ready), uint32(total)
	}
	return reply, nil
}

// adopt takes a pool that is there after an attempt of unknown outcome for the
// one that this request made, if it has the spec asked for.
func (s *poolService) adopt(ctx context.Context, name string, spec sundog.PoolSpec, reply *rpcpb.PoolCreateReply) error {
	for {
		changed := s.atlas.Changed()
		if m := s.atlas.Map(); m != nil {
			if pool, ok := m.PoolByName(name); ok && pool.Spec == spec {
				reply.Id, reply.Epoch = uint64(pool.ID), uint64(pool.Created)
				return nil
			} else if ok {
				return sundog.Errorf(sundog.Exists, "pool %q exists already, with another spec", name)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sundog.Errorf(sundog.Unknown, "pool %q: whether this request made it is not known", name)
		}
	}
}

// fillReplicas takes the cluster's replica count where none was asked for.
func (s *poolService) fillReplicas(spec *sundog.PoolSpec, open bool) error {
	if m := s.atlas.Map(); open && m != nil && m.Replicas != 0 {
		spec.Replicas = m.Replicas
	}
	return spec.Validate()
}

// commitPool proposes a pool as the catalog's leader. The first one brings the
// placement of the strong groups with it.
func (s *poolService) commitPool(ctx context.Context, name string, spec sundog.PoolSpec) (catalog.Result, error) {
	_, machine := s.council.replica()
	if !s.council.leads() || machine.Map() == nil {
		return catalog.Result{}, sundog.Errorf(sundog.NotOwner, "this node does not lead the catalog")
	}
	m := machine.Map()
	var birth []ring.Replicas
	if m.Replicas == 0 {
		var err error
		if birth, err = s.place(m, spec.Replicas); err != nil {
			return catalog.Result{}, err
		}
	}
	return s.council.propose(ctx, catalog.PoolCreate(name, spec, birth))
}

// place computes the placement at the birth of the strong groups, over the live
// nodes. It waits (Unavailable) for founders that are there and not registered
// yet: right after founding they would be left out for good.
func (s *poolService) place(m *ring.Map, replicas int) ([]ring.Replicas, error) {
	for _, id := range m.Founders {
		if _, ok := m.Node(id); !ok && s.alive(id) {
			return nil, sundog.Errorf(sundog.Unavailable, "founder %s is not registered yet", id)
		}
	}
	if len(m.Nodes) < replicas {
		return nil, sundog.Errorf(sundog.Invalid, "--replicas %d: the cluster has %d nodes; start more, or say --replicas %d", replicas, len(m.Nodes), len(m.Nodes))
	}
	var live []ring.Node
	for _, n := range m.Nodes {
		if s.alive(n.ID) {
			live = append(live, n)
		}
	}
	if len(live) < replicas {
		return nil, sundog.Errorf(sundog.Unavailable, "%d replicas need as many live nodes, and %d of %d are alive", replicas, len(live), len(m.Nodes))
	}
	return ring.Bootstrap(live, m.Partitions, replicas)
}

// awaitReady waits until every partition's leader has applied the pool set of
// epoch, and says how many of how many have when it ends; 0 of 0 where not even
// that can be learnt in time.
func (s *poolService) awaitReady(ctx context.Context, epoch sundog.Epoch) (ready, total int) {
	pause := readyPollMin
	for {
		if s.puller.need(ctx, epoch) == nil {
			if r, t, err := s.ready(ctx, epoch); err == nil && (ctx.Err() == nil || r >= ready) {
				ready, total = r, t // a survey that was cut short may have missed some
			}
		}
		if total > 0 && ready == total || !wait(ctx, pause) {
			return ready, total
		}
		pause = min(2*pause, readyPollMax)
	}
}

// ready counts the partitions whose leader has applied the pool set of epoch.
func (s *poolService) ready(ctx context.Context, epoch sundog.Epoch) (ready, total int, err error) {
	sv, err := s.inspector.survey(ctx)
	if err != nil {
		return 0, 0, err
	}
	total = len(sv.m.Placement)
	for p := range sundog.Partition(total) {
		if _, g := sv.leader(raftgroup.PartitionGroup(p)); sundog.Epoch(g.GetCatalog()) >= epoch {
			ready++
		}
	}
	return ready, total, nil
}

// set serves MethodPoolSet. Zero fields of the spec stay as they are when the
// change is applied, whatever they are by then.
func (s *poolService) set(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolSetRequest) (*rpcpb.PoolSetReply, error) {
	change, err := changeOf(q)
	if err != nil {
		return nil, err
	}
	reply := &rpcpb.PoolSetReply{}
	err = s.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodPoolSet, reply: reply,
		req: &rpcpb.PoolSetRequest{Name: q.GetName(), Spec: q.GetSpec(), Clear: q.GetClear(), Forwarded: true},
		here: func(ctx context.Context) error {
			result, err := s.council.propose(ctx, catalog.PoolSet(q.GetName(), change))
			reply.Epoch = uint64(result.Epoch)
			return err
		},
	})
	return reply, err
}

// remove serves MethodPoolDelete.
func (s *poolService) remove(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolDeleteRequest) (*rpcpb.PoolDeleteReply, error) {
	reply := &rpcpb.PoolDeleteReply{}
	err := s.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodPoolDelete, reply: reply,
		req: &rpcpb.PoolDeleteRequest{Name: q.GetName(), Forwarded: true},
		here: func(ctx context.Context) error {
			result, err := s.council.propose(ctx, catalog.PoolDelete(q.GetName()))
			reply.Epoch = uint64(result.Epoch)
			return err
		},
	})
	return reply, err
}

// describe serves MethodPoolDescribe: what the leaders of all partitions hold.
func (s *poolService) describe(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolDescribeRequest) (*rpcpb.PoolDescribeReply, error) {
	sv, err := s.inspector.survey(ctx)
	if err != nil {
		return nil, err
	}
	pool, ok := sv.m.PoolByName(q.GetName())
	if !ok {
		return nil, noPool(q.GetName())
	}
	reply := &rpcpb.PoolDescribeReply{
		Id: uint64(pool.ID), Name: pool.Name, Spec: rpc.SpecMessage(pool.Spec), Partitions: uint32(len(sv.m.Placement)),
	}
	for id, answer := range sv.answers {
		for _, u := range answer.GetUsage() {
			leader, _ := sv.leader(raftgroup.PartitionGroup(sundog.Partition(u.GetPartition())))
			if u.GetPool() == uint64(pool.ID) && leader == id {
				reply.Used += u.GetUsed()
				reply.Keys += u.GetKeys()
				reply.PartitionsReady++
			}
		}
	}
	return reply, nil
}

// changeOf reads what a request changes. Zero fields of its spec change nothing
// but those that it clears by name.
func changeOf(q *rpcpb.PoolSetRequest) (catalog.Change, error) {
	spec := rpc.SpecOf(q.GetSpec())
	c := catalog.Change{
		Consistency: given(spec.Consistency), Replicas: given(spec.Replicas), Quota: given(spec.Quota),
		Acks: given(spec.Acks), Durability: given(spec.Durability), MaxValue: given(spec.MaxValue),
	}
	for _, field := range q.GetClear() {
		if field != "quota" {
			return c, sundog.Errorf(sundog.Invalid, "%.100q cannot be cleared: only quota can", field)
		}
		c.Quota = new(int64)
	}
	return c, nil
}

// given returns the value, nil for the zero one.
func given[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
