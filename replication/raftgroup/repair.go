package raftgroup

import (
	"encoding/binary"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// The stores of a group hold together by one invariant, with S the newest
// snapshot's index (0 for none):
//
//	the log is empty, or it begins at S+1 or below and ends at S or above, and
//	its entry at S, where it has one, is of the snapshot's term.
//
// raft keeps it except across a crash: an installation makes its snapshot durable
// first and clears the log afterwards, in steps. repair finishes that. What it
// removes can never be missed:
//
//   - A log that ends below S: its entries are covered by the snapshot, or they
//     contradict it; the rest of this argument covers those.
//   - A log whose entry at S is of another term: what a snapshot covers is
//     committed, so this entry never was and never will be, and neither can any
//     behind it, since each leader that could commit one has all before it. Those
//     below S are covered.
//   - A log whose entry at S agrees is kept whole: what follows S may have been
//     acknowledged.
//
// What repair cannot account for it refuses: a log that begins above S+1, or a
// snapshot that is older than the newest one ever taken here. This voter has
// then lost what it acknowledged, and would grant votes, and count towards
// commits, as if it never had it. That newest index and term (the base) are
// stored beside the term and the vote before the log is cut up to them.
const baseKey = "sundog/base"

// base returns the index and term of the newest snapshot that this group has had
// on this node, 0 for none.
func (g *GroupLog) base() (index, term uint64, err error) {
	v, err := g.Get([]byte(baseKey))
	if err != nil || v == nil {
		return 0, 0, err
	}
	if len(v) != 16 {
		return 0, 0, sundog.Errorf(sundog.Corrupt, "raft log: base of %d bytes", len(v))
	}
	return binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:]), nil
}

// cover notes a snapshot that is on disk, durably: the log may then be cut up to
// it. An older one than is known changes nothing.
func (g *GroupLog) cover(index, term uint64) error {
	base, _, err := g.base()
	if err != nil {
		return err
	}
	if index > base {
		v := binary.BigEndian.AppendUint64(nil, index)
		v = binary.BigEndian.AppendUint64(v, term)
		if err := g.await(g.setAll(map[string][]byte{baseKey: v})); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if index >= g.coveredIndex {
		g.coveredIndex, g.coveredTerm = index, term
	}
	return nil
}

// repair establishes the invariant of log and snapshots before raft reads them,
// or refuses them as Corrupt.
func repair(log *GroupLog, snaps *snapshotStore) error {
	index, term, err := snaps.newest()
	if err != nil {
		return err
	}
	base, baseTerm, err := log.base()
	if err != nil {
		return err
	}
	if index < base || index == base && term != baseTerm {
		return lost(log.id, "%s holds no snapshot up to %d of term %d, behind which the log begins", snaps.dir, base, baseTerm)
	}
	if index > 0 {
		if err := log.cover(index, term); err != nil {
			return err
		}
	}
	e, err := log.extent()
	if err != nil {
		return err
	}
	if e.first == 0 {
		born, err := log.Get([]byte(bootstrapKey))
		if err == nil && born != nil && index == 0 {
			return lost(log.id, "there is neither a log nor a snapshot, though the group had begun")
		}
		return err
	}
	if e.first > index+1 {
		return lost(log.id, "the log begins at %d, the newest snapshot ends at %d", e.first, index)
	}
	if e.last >= index {
		if index < e.first {
			return nil
		}
		var at raft.Log
		if err := log.GetLog(index, &at); err != nil {
			return err
		}
		if at.Term == term {
			return nil
		}
	}
	return log.DeleteRange(e.first, e.last)
}

func lost(id GroupID, format string, args ...any) error {
	why := sundog.Errorf(sundog.Corrupt, format, args...)
	return sundog.Errorf(sundog.Corrupt, "%s: %s; this replica has lost entries that it acknowledged and must not vote: "+
		"put back what is missing, or remove the replica from the group and add it under a new incarnation", id, why.Msg)
}
