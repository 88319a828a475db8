package client

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// scanPage is how many items one request asks for; the node may give fewer, to
// bound the bytes of a reply.
const scanPage = 1000

// Scan walks all items of the pool, partition after partition, in no order that
// means anything. A key that is there from beginning to end comes at least once
// (twice only where its partition changed leader or grew meanwhile), one that
// comes or goes meanwhile may or may not come. Each page has a deadline of its
// own ([Options.Timeout]) unless ctx brings one for the whole scan. An error is
// the last thing the sequence yields.
func (p *Pool) Scan(ctx context.Context, o ScanOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if o.Limit < 0 {
			yield(Item{}, sundog.Errorf(sundog.Invalid, "limit %d: use 0 (all) or more", o.Limit))
			return
		}
		left := o.Limit
		for part := 0; ; part++ {
			more, err := p.scanPartition(ctx, o, part, &left, yield)
			if err != nil {
				yield(Item{}, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// scanPartition yields the items of one partition; false when there is no such
// partition, or the caller has enough.
func (p *Pool) scanPartition(ctx context.Context, o ScanOptions, part int, left *int, yield func(Item, error) bool) (bool, error) {
	for cursor := uint64(0); ; {
		page, err := p.scanPage(ctx, o, part, cursor, *left)
		if err != nil || page == nil {
			return false, err
		}
		for _, it := range page.Items {
			if !bytes.HasPrefix(it.Key, o.Prefix) {
				continue
			}
			item := Item{Key: it.Key, Value: it.Value, Version: it.Version, Node: page.node, Via: ViaRPC}
			if o.KeysOnly {
				item.Value = nil
			} else if item.Value == nil {
				item.Value = []byte{}
			}
			if it.Deadline != 0 {
				item.Deadline = time.UnixMilli(it.Deadline)
			}
			if !yield(item, nil) {
				return false, nil
			}
			if *left--; *left == 0 {
				return false, nil
			}
		}
		if cursor = page.Next; cursor == 0 {
			return true, nil
		}
	}
}

// scanPage fetches one page; nil without an error when the map has no partition
// part.
func (p *Pool) scanPage(ctx context.Context, o ScanOptions, part int, cursor uint64, left int) (*scanning, error) {
	ctx, leave, err := p.c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := p.c.await(ctx); err != nil {
		return nil, err
	}
	if part >= p.c.view.Load().Map().Partitions {
		return nil, nil
	}
	limit := scanPage
	if left > 0 {
		limit = min(limit, left)
	}
	s := &scanning{pool: p, req: rpc.ScanRequest{
		Pool: p.id, Partition: sundog.Partition(part), Cursor: cursor, Limit: limit,
		Prefix: o.Prefix, KeysOnly: o.KeysOnly,
	}}
	p.c.counters.scanPages.Add(1)
	p.c.run(ctx, route{part: s.req.Partition}, s)
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// scanning is the exchange of one page.
type scanning struct {
	pool *Pool
	req  rpc.ScanRequest
	rpc.ScanReply
	node sundog.NodeID
	err  error
}

func (*scanning) method() rpc.Method { return rpc.MethodScan }
func (*scanning) mutates() bool      { return false }
func (s *scanning) target() *Pool    { return s.pool }
func (s *scanning) body() rpc.Body   { return rpc.EncodeScan(s.req) }

func (s *scanning) settle(body []byte, node sundog.NodeID) *sundog.Error {
	reply, err := rpc.DecodeScanReply(body)
	if err != nil {
		return sundog.AsError(err)
	}
	s.ScanReply, s.node = reply, node
	return nil
}

func (s *scanning) fail(err *sundog.Error) { s.err = err }

// split asks for a smaller page; the cursor goes on from wherever that ends.
func (s *scanning) split() (exchange, bool) {
	if s.req.Limit <= 1 {
		return nil, false
	}
	s.req.Limit /= 2
	return nil, true
}
