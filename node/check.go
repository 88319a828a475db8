package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

const (
	checkWide     = 8                      // partitions checked at once
	checkRest     = 200 * time.Millisecond // before partitions that did not begin are tried again
	checkPoll     = 20 * time.Millisecond  // between looks at a replica that is hashing, growing tenfold
	checkDeadline = time.Minute            // of a check whose request names none
)

// replicaCheck serves MethodReplicaCheck: it begins a check on the leader (no
// id), or tells this replica's sum of one.
func (i *inspector) replicaCheck(ctx context.Context, _ *rpc.Request, q *rpcpb.ReplicaCheckRequest) (*rpcpb.ReplicaCheckReply, error) {
	if q.GetPartition() >= sundog.Slots {
		return nil, sundog.Errorf(sundog.Invalid, "partition %d", q.GetPartition())
	}
	r := i.hosting.get(sundog.Partition(q.GetPartition()))
	if r == nil {
		return nil, sundog.Errorf(sundog.NotOwner, "no replica of partition %d on this node", q.GetPartition())
	}
	if q.GetCheckId() == 0 {
		id, err := r.Check(ctx, sundog.PoolID(q.GetPool()))
		if err != nil {
			return nil, err
		}
		return &rpcpb.ReplicaCheckReply{CheckId: uint64(id)}, nil
	}
	sum, ok := r.CheckResult(replication.CheckID(q.GetCheckId()))
	if !ok {
		return &rpcpb.ReplicaCheckReply{}, nil
	}
	return &rpcpb.ReplicaCheckReply{
		Done: true, Index: sum.Index, Hash: sum.Hash[:], Keys: uint64(sum.Keys), CheckId: q.GetCheckId(),
	}, nil
}

// check serves MethodCheck: it has all replicas of every partition hash the pool
// at one log index each, and compares. A partition that has no leader yet, or
// whose leader does not begin, is tried again for half of the request's time, so
// that a check right after a recovery tells the truth.
func (i *inspector) check(ctx context.Context, _ *rpc.Request, q *rpcpb.CheckRequest) (*rpcpb.CheckReply, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(checkDeadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	c := checker{inspector: i, half: time.Now().Add(time.Until(deadline) / 2)}
	for {
		done, err := c.round(ctx, q.GetPool())
		if err != nil {
			return nil, err
		}
		if done || time.Now().After(c.half) || !wait(ctx, checkRest) {
			return c.reply(), nil
		}
	}
}

// checker is one check of one pool.
type checker struct {
	*inspector
	half    time.Time // half of the request's time is over then
	details []*rpcpb.CheckDetail
	begun   []bool // by partition: the check ran, its detail is final
}

// round checks the partitions that have not begun yet and says whether all have.
func (c *checker) round(ctx context.Context, name string) (bool, error) {
	s, err := c.survey(ctx)
	if err != nil {
		return false, err
	}
	pool, ok := s.m.PoolByName(name)
	if !ok {
		return false, noPool(name)
	}
	if c.details == nil {
		c.details = make([]*rpcpb.CheckDetail, len(s.m.Placement))
		c.begun = make([]bool, len(s.m.Placement))
	}
	inParallel(checkWide, len(c.details), func(p int) {
		if !c.begun[p] {
			c.details[p], c.begun[p] = c.partition(ctx, s, pool, sundog.Partition(p))
		}
	})
	return !slices.Contains(c.begun, false), nil
}

func (c *checker) reply() *rpcpb.CheckReply {
	reply := &rpcpb.CheckReply{Partitions: uint32(len(c.details)), Equal: true}
	for _, d := range c.details {
		reply.Keys += d.GetKeys()
		if !d.GetEqual() {
			reply.Equal = false
			reply.Detail = append(reply.Detail, d)
		}
	}
	return reply
}

// partition compares the replicas of one partition; false: it did not begin.
func (c *checker) partition(ctx context.Context, s *survey, pool ring.Pool, p sundog.Partition) (*rpcpb.CheckDetail, bool) {
	d := &rpcpb.CheckDetail{Partition: uint32(p)}
	leader, _ := s.leader(raftgroup.PartitionGroup(p))
	if leader == 0 {
		d.Text, d.Leaderless = "no leader answers", true
		return d, false
	}
	begun, err := c.askReplica(ctx, leader, &rpcpb.ReplicaCheckRequest{Partition: uint32(p), Pool: uint64(pool.ID)})
	if err != nil {
		d.Text, d.Silent = fmt.Sprintf("the leader %s did not begin: %v", leader, err), []uint64{uint64(leader)}
		return d, false
	}
	owners := s.m.Owners(p)
	sums := make([]*rpcpb.ReplicaCheckReply, len(owners))
	errs := make([]error, len(owners))
	inParallel(len(owners), len(owners), func(at int) {
		sums[at], errs[at] = c.awaitSum(ctx, owners[at].Node, &rpcpb.ReplicaCheckRequest{
			Partition: uint32(p), Pool: uint64(pool.ID), CheckId: begun.GetCheckId(),
		})
	})
	compareSums(d, owners, sums, errs)
	return d, true
}

// compareSums fills in whether all replicas answered with the same sum, how many
// keys the first one has, and what is the matter.
func compareSums(d *rpcpb.CheckDetail, owners ring.Replicas, sums []*rpcpb.ReplicaCheckReply, errs []error) {
	var first *rpcpb.ReplicaCheckReply
	var lines []string
	for at, sum := range sums {
		if errs[at] != nil {
			d.Silent = append(d.Silent, uint64(owners[at].Node))
			lines = append(lines, fmt.Sprintf("replica %s did not answer: %v", owners[at].ServerID(), errs[at]))
			continue
		}
		if first == nil {
			first, d.Keys = sum, sum.GetKeys()
		}
		if sum.GetIndex() != first.GetIndex() || string(sum.GetHash()) != string(first.GetHash()) || sum.GetKeys() != first.GetKeys() {
			d.Differs = true
		}
		lines = append(lines, fmt.Sprintf("replica %s: index %d, %d keys, hash %s", owners[at].ServerID(), sum.GetIndex(), sum.GetKeys(), hex.EncodeToString(sum.GetHash())))
	}
	if d.Equal = !d.Differs && len(d.Silent) == 0; !d.Equal {
		d.Text = strings.Join(lines, "; ")
	}
}

// awaitSum asks a replica until it has hashed. One that cannot be reached is
// given up when half of the time is over.
func (c *checker) awaitSum(ctx context.Context, id sundog.NodeID, q *rpcpb.ReplicaCheckRequest) (*rpcpb.ReplicaCheckReply, error) {
	for pause := checkPoll; ; pause = min(2*pause, 10*checkPoll) {
		reply, err := c.askReplica(ctx, id, q)
		switch {
		case err == nil && reply.GetDone():
			return reply, nil
		case err != nil && (sundog.KindOf(err) != sundog.Unavailable || time.Now().After(c.half)):
			return nil, err
		case !wait(ctx, pause):
			if err == nil {
				err = sundog.Errorf(sundog.Timeout, "it has not come to the check yet")
			}
			return nil, err
		}
	}
}

func (i *inspector) askReplica(ctx context.Context, id sundog.NodeID, q *rpcpb.ReplicaCheckRequest) (*rpcpb.ReplicaCheckReply, error) {
	if id == i.self {
		return i.replicaCheck(ctx, nil, q)
	}
	reply := &rpcpb.ReplicaCheckReply{}
	if err := i.directory.call(ctx, id, rpc.MethodReplicaCheck, q, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

func noPool(name string) error {
	return sundog.Errorf(sundog.NotFound, "no pool %.200q", name)
}
