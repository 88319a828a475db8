package node

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

const (
	voterTimeout  = time.Second            // one voter's time to tell the newest start that it knows
	voterPatience = 3 * time.Second        // for voters that do not answer, until a refusal is told without them
	voterPause    = 200 * time.Millisecond // before they are asked again
)

// remember notes on disk what a refusal is worth. That of one peer makes the next
// start repeat this one: a directory that is behind does not catch up by starting
// over, and a mistaken refusal costs nothing. Where the catalog's voters agree
// that this node has made a later start, or the same from another directory, no
// start is to be made from this directory again.
func (r *registrar) remember(ctx context.Context, refusal *sundog.Error) {
	began := time.Now()
	reason, behind, all := r.condemned(ctx)
	for !behind && !all && time.Since(began) < voterPatience && wait(ctx, voterPause) {
		reason, behind, all = r.condemned(ctx)
	}
	var err error
	switch {
	case behind:
		err = r.dir.Fence(reason)
	case !r.taken: // others count on a start that was registered: it is over
		err = r.dir.NoteRefusal(refusal.Msg)
	}
	if err != nil {
		r.log.Error("refusal not noted", "err", err)
	}
}

// condemned asks the catalog's voters for the newest start of this node that was
// committed. They condemn this directory when a majority of them tells of a later
// one; this node is not asked, and where it is one of two the other one decides.
// all says that no voter was silent.
func (r *registrar) condemned(ctx context.Context) (reason string, behind, all bool) {
	m := r.atlas.Map()
	if m == nil {
		return "", false, true // it was never in a cluster that could tell
	}
	voters := catalogVoters(m)
	others := slices.DeleteFunc(slices.Clone(voters), func(id sundog.NodeID) bool { return id == r.self.ID })
	var told, later atomic.Int64
	var newest atomic.Uint64
	inParallel(len(others), len(others), func(i int) {
		boot, nonce, ok := r.startKnown(ctx, others[i])
		if ok {
			told.Add(1)
		}
		if overtaken(r.self.Boot, r.dir.Nonce(), boot, nonce) {
			later.Add(1)
			newest.Store(boot)
		}
	})
	all = int(told.Load()) == len(others)
	if need := enough(len(voters), len(others)); need == 0 || later.Load() < int64(need) {
		return "", false, all
	}
	return fmt.Sprintf("%d of the %d voters of the catalog of cluster %s know start %d of node %s, made from another copy of this directory, which made start %d",
		later.Load(), len(voters), m.Cluster, newest.Load(), r.self.ID, r.self.Boot), true, all
}

// overtaken says whether a registered start shows that another one is a copy's.
func overtaken(boot, nonce, seenBoot, seenNonce uint64) bool {
	return seenBoot > boot || seenBoot == boot && boot != 0 && seenNonce != nonce
}

// enough is how many of the other voters have to agree: a majority of all, or all
// others where they are fewer.
func enough(voters, others int) int { return min(voters/2+1, others) }

// startKnown asks one voter for this node's newest start, 0 for none; false when
// it does not answer.
func (r *registrar) startKnown(ctx context.Context, voter sundog.NodeID) (boot, nonce uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, voterTimeout)
	defer cancel()
	var st rpcpb.StatusReply
	if err := r.directory.call(ctx, voter, rpc.MethodStatus, &rpcpb.StatusRequest{StartOf: uint64(r.self.ID)}, &st); err != nil {
		r.log.Debug("a voter does not tell this node's newest start", "voter", voter, "err", err)
		return 0, 0, false
	}
	return st.GetStartBoot(), st.GetStartNonce(), true
}
