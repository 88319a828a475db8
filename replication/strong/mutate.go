package strong

import (
	"context"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

const (
	// chunkBytes and chunkOps bound what goes into one command; a larger op goes
	// alone. Chunks of one call are committed one after another, which keeps the
	// order of a key's ops.
	chunkBytes = 256 << 10
	chunkOps   = 1024
	// opRoom is more than an encoded op needs beside its key and value.
	opRoom = 64
)

// Mutate executes ops through the log; see replication.Engine. Beside the
// outcomes of the ops themselves (Exists, Conflict, NotFound for a delete,
// Invalid for a counter) the errors are: Invalid, TooLarge, NoSpace and Stale
// (the pool is not here) before the log; NotOwner with the leader where known,
// Unavailable and Timeout, not executed; Unknown; Closed.
//
// A put's and a counter's result carries the new version, a delete's the
// version that the deletion took; Exists and Conflict carry the key's.
func (p *Partition) Mutate(ctx context.Context, ops []rpc.Op) []rpc.OpResult {
	results := make([]rpc.OpResult, len(ops))
	r, err := p.opened(ctx)
	for from := 0; from < len(ops); {
		to := chunkEnd(ops, from)
		if err == nil {
			err = p.mutateChunk(ctx, r, ops[from:to], results[from:to])
		} else {
			failAll(results[from:to], notReached(err))
		}
		from = to
	}
	return results
}

// notReached is the error of ops behind a chunk that failed: they were not
// proposed, so they surely are not executed, whatever became of the chunk.
func notReached(err *sundog.Error) *sundog.Error {
	if err.Kind != sundog.Unknown {
		return err
	}
	return sundog.Errorf(sundog.Unavailable, "not executed: an earlier part of the request has an unknown outcome")
}

func chunkEnd(ops []rpc.Op, from int) int {
	to, size := from, 0
	for to < len(ops) && to-from < chunkOps {
		size += opRoom + len(ops[to].Key) + len(ops[to].Value)
		if size > chunkBytes && to > from {
			break
		}
		to++
	}
	return to
}

// opened returns the reign once it admits mutations.
func (p *Partition) opened(ctx context.Context) (*reign, *sundog.Error) {
	r := p.reign.Load()
	if r == nil {
		return nil, p.notLeading()
	}
	select {
	case <-r.open:
		return r, nil
	case <-r.over:
		return nil, p.notLeading()
	case <-ctx.Done():
		return nil, sundog.Errorf(sundog.Timeout, "the new leader of partition %d is not ready: %w", p.partition, ctx.Err())
	}
}

// mutateChunk admits, proposes and answers one chunk. The error says that the
// chunk was not done, or is not known to be; its results are filled then too.
func (p *Partition) mutateChunk(ctx context.Context, r *reign, ops []rpc.Op, results []rpc.OpResult) *sundog.Error {
	tickets := p.admit(ctx, ops, results)
	command, sent := encodeAdmitted(ops, results)
	if len(sent) == 0 {
		return nil
	}
	answer, err := p.group.Propose(ctx, command)
	if err == nil {
		done, ok := answer.([]rpc.OpResult)
		if ok && len(done) == len(sent) {
			for i, at := range sent {
				results[at] = done[i]
			}
			p.settleOrKeep(ctx, r, tickets)
			return nil
		}
		err = sundog.Errorf(sundog.Unknown, "partition %d answered %T to %d ops", p.partition, answer, len(sent))
	}
	e := sundog.AsError(p.located(err))
	for _, at := range sent {
		results[at].Err = e
	}
	if e.Kind == sundog.Unknown && r.keep(tickets) {
		poke(p.wake)
	} else {
		p.settleOrKeep(ctx, r, tickets)
	}
	return e
}

// encodeAdmitted makes the command of the ops that have no error yet, and says
// which they are.
func encodeAdmitted(ops []rpc.Op, results []rpc.OpResult) (command []byte, sent []int) {
	size := 1
	sent = make([]int, 0, len(ops))
	for i := range ops {
		if results[i].Err == nil {
			sent = append(sent, i)
			size += opRoom + len(ops[i].Key) + len(ops[i].Value)
		}
	}
	command = append(make([]byte, 0, size), byte(kindOps))
	for _, i := range sent {
		command = rpc.AppendOp(command, &ops[i])
	}
	return command, sent
}

func failAll(results []rpc.OpResult, err *sundog.Error) {
	for i := range results {
		results[i].Err = err
	}
}

func (p *Partition) notLeading() *sundog.Error {
	e := sundog.Errorf(sundog.NotOwner, "this replica of partition %d does not lead", p.partition)
	e.Leader, e.Epoch = p.group.Status().Leader, p.epoch()
	return e
}

// located adds what the sender needs to find the leader.
func (p *Partition) located(err error) error {
	if err == nil {
		return nil
	}
	e := sundog.AsError(err)
	if e.Kind != sundog.NotOwner && e.Kind != sundog.Stale || e.Epoch != 0 {
		return e
	}
	with := *e
	with.Epoch = p.epoch()
	return &with
}
