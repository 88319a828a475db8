package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// catchUpMost bounds the wait for the map of a change that is made.
const catchUpMost = 5 * time.Second

// Pools lists the pools by id, of the newest map that the nodes which keep the
// catalog have.
func (c *Client) Pools(ctx context.Context) ([]PoolInfo, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	if err := c.newest(ctx); err != nil {
		return nil, err
	}
	var out []PoolInfo
	for _, p := range c.view.Load().Map().Pools {
		out = append(out, PoolInfo{ID: p.ID, Name: p.Name, Spec: p.Spec})
	}
	return out, nil
}

// CreatePool makes a pool. What spec leaves zero is for the cluster to fill in:
// Replicas with the count that its strong pools share, the rest as in
// [sundog.PoolSpec.WithDefaults]. The kinds: Invalid for a name or spec that can
// never be, Exists, Conflict where the cluster cannot hold it. nil says that the
// pool is made; calls on its partitions that are not ready yet wait for them
// within their deadline. [Client.CreatePoolStatus] tells how many are.
func (c *Client) CreatePool(ctx context.Context, name string, spec sundog.PoolSpec) (PoolInfo, error) {
	st, err := c.CreatePoolStatus(ctx, name, spec)
	return st.PoolInfo, err
}

// CreatePoolStatus is CreatePool that also tells how much of the new pool was
// ready when the call's time ended: Ready of Partitions, 0 of 0 where not even
// that was learnt. The rest becomes ready by itself.
func (c *Client) CreatePoolStatus(ctx context.Context, name string, spec sundog.PoolSpec) (PoolStatus, error) {
	if err := sundog.CheckPoolName(name); err != nil {
		return PoolStatus{}, err
	}
	if err := spec.WithDefaults().Validate(); err != nil {
		return PoolStatus{}, err
	}
	if err := c.checkQuota(ctx, spec.Quota); err != nil {
		return PoolStatus{}, err
	}
	var reply rpcpb.PoolCreateReply
	req := &rpcpb.PoolCreateRequest{Name: name, Spec: rpc.SpecMessage(spec)}
	if err := c.control(ctx, rpc.MethodPoolCreate, true, req, &reply); err != nil {
		return PoolStatus{}, err
	}
	c.catchUp(ctx, sundog.Epoch(reply.GetEpoch()))
	st := PoolStatus{
		PoolInfo: PoolInfo{ID: sundog.PoolID(reply.GetId()), Name: name, Spec: spec.WithDefaults()},
		Ready:    int(reply.GetPartitionsReady()), Partitions: int(reply.GetPartitions()),
	}
	if reply.GetSpec() != nil {
		st.Spec = rpc.SpecOf(reply.GetSpec())
	} else if p, ok := c.view.Load().Map().Pool(st.ID); ok {
		st.Spec = p.Spec
	}
	return st, nil
}

// PartitionCount is the number of equal parts that the cluster cuts every pool
// into. A quota is divided by it: each partition may hold its share and no more.
func (c *Client) PartitionCount(ctx context.Context) (int, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := c.await(ctx); err != nil {
		return 0, err
	}
	return c.view.Load().Map().Partitions, nil
}

// checkQuota refuses a quota that leaves nothing to a partition.
func (c *Client) checkQuota(ctx context.Context, quota int64) error {
	if quota <= 0 {
		return nil
	}
	parts, err := c.PartitionCount(ctx)
	if err != nil {
		return err
	}
	if quota < int64(parts) {
		return sundog.Errorf(sundog.Invalid, "quota of %d bytes: it is divided by the %d partitions, and leaves nothing to each; use more, or 0 for none", quota, parts)
	}
	return nil
}

// SetPool changes a pool; NotFound when there is none of that name.
func (c *Client) SetPool(ctx context.Context, name string, change PoolChange) error {
	if err := sundog.CheckPoolName(name); err != nil {
		return err
	}
	req := &rpcpb.PoolSetRequest{Name: name, Spec: &rpcpb.PoolSpec{}}
	if change.Quota != nil {
		if *change.Quota < 0 {
			return sundog.Errorf(sundog.Invalid, "quota %d bytes: use 0 (none) or more", *change.Quota)
		}
		if err := c.checkQuota(ctx, *change.Quota); err != nil {
			return err
		}
		if req.Spec.Quota = *change.Quota; *change.Quota == 0 {
			req.Clear = append(req.Clear, "quota")
		}
	}
	if change.MaxValue != nil {
		if *change.MaxValue < 1 || *change.MaxValue > sundog.MaxValue {
			return sundog.Errorf(sundog.Invalid, "max value %d bytes: use 1 to %d", *change.MaxValue, sundog.MaxValue)
		}
		req.Spec.MaxValue = *change.MaxValue
	}
	var reply rpcpb.PoolSetReply
	if err := c.control(ctx, rpc.MethodPoolSet, true, req, &reply); err != nil {
		return err
	}
	c.catchUp(ctx, sundog.Epoch(reply.GetEpoch()))
	return nil
}

// DeletePool removes a pool and all it holds; NotFound when there is none of
// that name.
func (c *Client) DeletePool(ctx context.Context, name string) error {
	if err := sundog.CheckPoolName(name); err != nil {
		return err
	}
	var reply rpcpb.PoolDeleteReply
	if err := c.control(ctx, rpc.MethodPoolDelete, true, &rpcpb.PoolDeleteRequest{Name: name}, &reply); err != nil {
		return err
	}
	c.catchUp(ctx, sundog.Epoch(reply.GetEpoch()))
	return nil
}

// DescribePool tells a pool's spec and what it holds; NotFound when there is
// none of that name.
func (c *Client) DescribePool(ctx context.Context, name string) (PoolStatus, error) {
	if err := sundog.CheckPoolName(name); err != nil {
		return PoolStatus{}, err
	}
	var r rpcpb.PoolDescribeReply
	if err := c.lookup(ctx, rpc.MethodPoolDescribe, &rpcpb.PoolDescribeRequest{Name: name}, &r); err != nil {
		return PoolStatus{}, err
	}
	return PoolStatus{
		PoolInfo: PoolInfo{ID: sundog.PoolID(r.GetId()), Name: r.GetName(), Spec: rpc.SpecOf(r.GetSpec())},
		Used:     r.GetUsed(), Keys: r.GetKeys(),
		Ready: int(r.GetPartitionsReady()), Partitions: int(r.GetPartitions()),
	}, nil
}

// Nodes lists all nodes by id, as the node that answers sees them.
func (c *Client) Nodes(ctx context.Context) ([]NodeStatus, error) {
	var r rpcpb.NodesReply
	if err := c.control(ctx, rpc.MethodNodes, false, &rpcpb.NodesRequest{}, &r); err != nil {
		return nil, err
	}
	out := make([]NodeStatus, 0, len(r.GetNodes()))
	for _, n := range r.GetNodes() {
		out = append(out, NodeStatus{
			ID: sundog.NodeID(n.GetId()), Listen: n.GetListen(), HTTP: n.GetHttp(), Gossip: n.GetGossip(),
			Zone: n.GetZone(), State: n.GetState(), Replicas: int(n.GetReplicas()), Leaders: int(n.GetLeaders()),
			SafeToStop: n.GetSafeToStop(), Reason: n.GetReason(),
		})
	}
	return out, nil
}

// Partitions lists all partitions by number.
func (c *Client) Partitions(ctx context.Context) ([]PartitionStatus, error) {
	var r rpcpb.PartitionsReply
	if err := c.control(ctx, rpc.MethodPartitions, false, &rpcpb.PartitionsRequest{}, &r); err != nil {
		return nil, err
	}
	out := make([]PartitionStatus, 0, len(r.GetPartitions()))
	for _, p := range r.GetPartitions() {
		s := PartitionStatus{
			Partition: sundog.Partition(p.GetPartition()), Leader: sundog.NodeID(p.GetLeader()),
			Term: p.GetTerm(), Applied: p.GetApplied(),
		}
		for _, id := range p.GetReplicas() {
			s.Replicas = append(s.Replicas, sundog.NodeID(id))
		}
		out = append(out, s)
	}
	return out, nil
}

// Check makes every replica of every partition hash what it holds of the pool at
// one point of its log, and compares. Replicas that differ are no error but in
// the report; one that does not answer makes it not equal ([CheckReport.Differs]
// tells which).
func (c *Client) Check(ctx context.Context, name string) (CheckReport, error) {
	if err := sundog.CheckPoolName(name); err != nil {
		return CheckReport{}, err
	}
	var r rpcpb.CheckReply
	if err := c.lookup(ctx, rpc.MethodCheck, &rpcpb.CheckRequest{Pool: name}, &r); err != nil {
		return CheckReport{}, err
	}
	out := CheckReport{Partitions: int(r.GetPartitions()), Equal: r.GetEqual(), Keys: int64(r.GetKeys())}
	for _, d := range r.GetDetail() {
		detail := CheckDetail{
			Partition: sundog.Partition(d.GetPartition()), Equal: d.GetEqual(), Keys: int64(d.GetKeys()), Text: d.GetText(),
			Differs: d.GetDiffers(), Leaderless: d.GetLeaderless(),
		}
		for _, id := range d.GetSilent() {
			detail.Silent = append(detail.Silent, sundog.NodeID(id))
		}
		out.Details = append(out.Details, detail)
	}
	return out, nil
}

// control makes a control call on any node, another when one does not serve. The
// rule of outcomes is that of all calls.
func (c *Client) control(ctx context.Context, m rpc.Method, mutates bool, req, reply proto.Message) error {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.await(ctx); err != nil {
		return err
	}
	body, err := proto.Marshal(req)
	if err != nil {
		return sundog.Errorf(sundog.Internal, "encode %v: %w", m, err)
	}
	x := &controlling{m: m, change: mutates, req: body, reply: reply}
	c.run(ctx, route{any: true}, x)
	if x.err != nil {
		if x.err.Kind == sundog.Unknown {
			c.counters.unknowns.Add(1)
		}
		return x.err
	}
	return nil
}

// lookup makes a control call that reads about a pool. NotFound may come from a
// node that has not heard of the pool yet: it is believed when asking with the
// newest epoch, which makes that node catch up, changes nothing.
func (c *Client) lookup(ctx context.Context, m rpc.Method, req, reply proto.Message) error {
	err := c.control(ctx, m, false, req, reply)
	if !errors.Is(err, sundog.NotFound) {
		return err
	}
	ctx, leave, entered := c.enter(ctx)
	if entered != nil {
		return entered
	}
	defer leave()
	before := c.epoch()
	if c.newest(ctx) != nil || c.epoch() == before {
		return err
	}
	return c.control(ctx, m, false, req, reply)
}

// catchUp tries, within ctx and no longer than catchUpMost, to get a map of the
// epoch that a change of our own made. The change is made either way; without the
// map the next call learns of it from the node it asks.
func (c *Client) catchUp(ctx context.Context, epoch sundog.Epoch) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, catchUpMost)
	defer cancel()
	var t tries
	for c.epoch() < epoch {
		if err := c.refresh(ctx); err == nil && c.epoch() >= epoch {
			return
		}
		if !c.pause(ctx, &t) {
			return
		}
	}
}

// controlling is the exchange of one control call.
type controlling struct {
	m      rpc.Method
	change bool
	req    []byte
	reply  proto.Message
	err    *sundog.Error
}

func (x *controlling) method() rpc.Method      { return x.m }
func (x *controlling) mutates() bool           { return x.change }
func (x *controlling) target() *Pool           { return nil }
func (x *controlling) body() rpc.Body          { return rpc.Body{x.req} }
func (x *controlling) split() (exchange, bool) { return nil, false }
func (x *controlling) fail(err *sundog.Error)  { x.err = err }

func (x *controlling) settle(body []byte, _ sundog.NodeID) *sundog.Error {
	if err := rpc.Unmarshal(body, x.reply); err != nil {
		return sundog.AsError(err)
	}
	return nil
}
