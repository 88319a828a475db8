package node

import (
	"context"
	"fmt"
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
// partition's leader has it. Exists for a name that is taken, also by a pool of
// the same spec.
func (s *poolService) create(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolCreateRequest) (*rpcpb.PoolCreateReply, error) {
	spec := specOf(q.GetSpec()).WithDefaults()
	if err := sundog.CheckPoolName(q.GetName()); err != nil {
		return nil, err
	}
	if err := s.fillReplicas(&spec, q.GetSpec().GetReplicas() == 0); err != nil {
		return nil, err
	}
	reply := &rpcpb.PoolCreateReply{}
	doubt := false
	err := s.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodPoolCreate, again: true, doubt: &doubt, reply: reply,
		req: &rpcpb.PoolCreateRequest{Name: q.GetName(), Spec: specPB(spec), Forwarded: true},
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
	if q.GetForwarded() {
		return reply, nil
	}
	if err := s.awaitReady(ctx, q.GetName(), sundog.Epoch(reply.GetEpoch())); err != nil {
		return nil, err
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

// awaitReady returns when every partition's leader has applied the pool.
func (s *poolService) awaitReady(ctx context.Context, name string, epoch sundog.Epoch) error {
	if err := s.puller.need(ctx, epoch); err != nil {
		return notReady(name, "", err)
	}
	pause := readyPollMin
	for {
		ready, total, err := s.ready(ctx, epoch)
		if err == nil && ready == total {
			return nil
		}
		if !wait(ctx, pause) {
			return notReady(name, fmt.Sprintf("%d of %d partitions have a leader that has it", ready, total), err)
		}
		pause = min(2*pause, readyPollMax)
	}
}

func notReady(name, progress string, err error) error {
	if err != nil {
		progress = err.Error()
	}
	return sundog.Errorf(sundog.Timeout, "pool %q is created, but not ready yet: %s; it goes on by itself", name, progress)
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

// set serves MethodPoolSet. Zero fields of the spec stay as they are.
func (s *poolService) set(ctx context.Context, _ *rpc.Request, q *rpcpb.PoolSetRequest) (*rpcpb.PoolSetReply, error) {
	reply := &rpcpb.PoolSetReply{}
	err := s.writer.do(ctx, q.GetForwarded(), catalogWrite{
		method: rpc.MethodPoolSet, reply: reply,
		req: &rpcpb.PoolSetRequest{Name: q.GetName(), Spec: q.GetSpec(), Clear: q.GetClear(), Forwarded: true},
		here: func(ctx context.Context) error {
			_, machine := s.council.replica()
			if !s.council.leads() || machine.Map() == nil {
				return sundog.Errorf(sundog.NotOwner, "this node does not lead the catalog")
			}
			old, ok := machine.Map().PoolByName(q.GetName())
			if !ok {
				return noPool(q.GetName())
			}
			spec, err := changedSpec(old.Spec, q)
			if err != nil {
				return err
			}
			result, err := s.council.propose(ctx, catalog.PoolSet(q.GetName(), spec))
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
		Id: uint64(pool.ID), Name: pool.Name, Spec: specPB(pool.Spec), Partitions: uint32(len(sv.m.Placement)),
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

// changedSpec applies a request to a spec.
func changedSpec(spec sundog.PoolSpec, q *rpcpb.PoolSetRequest) (sundog.PoolSpec, error) {
	next := specOf(q.GetSpec())
	if next.Consistency != 0 {
		spec.Consistency = next.Consistency
	}
	if next.Replicas != 0 {
		spec.Replicas = next.Replicas
	}
	if next.Quota != 0 {
		spec.Quota = next.Quota
	}
	if next.Acks != 0 {
		spec.Acks = next.Acks
	}
	if next.Durability != 0 {
		spec.Durability = next.Durability
	}
	if next.MaxValue != 0 {
		spec.MaxValue = next.MaxValue
	}
	for _, field := range q.GetClear() {
		if field != "quota" {
			return spec, sundog.Errorf(sundog.Invalid, "%.100q cannot be cleared: only quota can", field)
		}
		spec.Quota = 0
	}
	return spec, spec.Validate()
}

func specOf(s *rpcpb.PoolSpec) sundog.PoolSpec {
	// Numbers that no enumeration has stay out of it, whatever they are modulo 256.
	narrow := func(v uint32) uint8 { return uint8(min(v, 255)) }
	return sundog.PoolSpec{
		Consistency: sundog.Consistency(narrow(s.GetConsistency())), Replicas: int(s.GetReplicas()), Quota: s.GetQuota(),
		Acks: sundog.Acks(narrow(s.GetAcks())), Durability: sundog.Durability(narrow(s.GetDurability())), MaxValue: s.GetMaxValue(),
	}
}

func specPB(s sundog.PoolSpec) *rpcpb.PoolSpec {
	return &rpcpb.PoolSpec{
		Consistency: uint32(s.Consistency), Replicas: uint32(s.Replicas), Quota: s.Quota,
		Acks: uint32(s.Acks), Durability: uint32(s.Durability), MaxValue: s.MaxValue,
	}
}
