package raftgroup

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// snapshotTurn lets a group take a snapshot of its own or install a received
// one, never both: raft does not order them. An own one that began before an
// installation and ends after it would replace the newer snapshot, whose index
// the log begins behind, and would set back what raft knows of its newest one.
type snapshotTurn struct{ now atomic.Int32 }

const (
	turnFree = iota
	turnOwn
	turnInstall
)

// take reports whether the turn is the caller's now; it does not wait.
func (t *snapshotTurn) take(whose int32) bool { return t.now.CompareAndSwap(turnFree, whose) }

func (t *snapshotTurn) give() { t.now.Store(turnFree) }

// admitInstall decides on a snapshot that a leader wants to send.
//
// What this replica has applied already (or its machine was given) is never installed: raft would carry it
// out, and throw away log entries that this voter has acknowledged. A leader of a
// current term is told that it has succeeded: its snapshot is a committed prefix,
// and so is what was applied here, so the snapshot's content is held, in the log
// or in a snapshot of this replica's own. The leader learns nothing else from a
// success. Without it a leader whose answer was lost would send the snapshot for
// ever. Of an older term it is told the term.
func (g *Group) admitInstall(req *raft.InstallSnapshotRequest) (admission, error) {
	term, err := g.log.GetUint64([]byte(currentTermKey))
	if err != nil {
		return admission{}, err
	}
	if req.Term < term {
		return admission{answer: &raft.InstallSnapshotResponse{Term: term}}, nil
	}
	if req.LastLogIndex <= g.handedOver() {
		return admission{answer: &raft.InstallSnapshotResponse{Term: term, Success: true}}, nil
	}
	if !g.turn.take(turnInstall) {
		return admission{}, sundog.Errorf(sundog.Unavailable, "%s: a snapshot is taken or installed already", g.cfg.ID)
	}
	return admission{release: g.turn.give}, nil
}

// mayCreate refuses the installation of a snapshot that entries have overtaken
// since it was admitted. raft calls it from the thread that applies, so nothing
// overtakes it any more.
func (g *Group) mayCreate(index uint64) error {
	if g.turn.now.Load() != turnInstall {
		return nil
	}
	if applied := g.handedOver(); index <= applied {
		return sundog.Errorf(sundog.Conflict, "%s: snapshot up to %d, but %d is applied here", g.cfg.ID, index, applied)
	}
	return nil
}

// handedOver is the highest index that the machine was given, raft's own entries
// included: committed, and held here.
func (g *Group) handedOver() uint64 {
	applied := g.fsm.applied.Load()
	if in := g.current.Load(); in != nil {
		applied = max(applied, in.raft.AppliedIndex())
	}
	return applied
}
