package raftgroup

import (
	"bytes"
	"encoding/binary"

	"github.com/sundog-kv/sundog"
	"go.etcd.io/bbolt"
)

// raft writes a vote as two values, the term and then the candidate, and a
// crash between them would leave the new term beside an older candidate, to whom
// this voter would then grant without comparing logs. So the term waits in memory
// for the candidate and both are one transaction; no vote is answered before.
const (
	voteTermKey      = "LastVoteTerm"
	voteCandidateKey = "LastVoteCand"
)

// Set stores a value durably; the term of a vote together with its candidate.
func (g *GroupLog) Set(key, val []byte) error {
	if err := g.load(); err != nil {
		return err
	}
	pairs := map[string][]byte{string(key): bytes.Clone(val)}
	g.mu.Lock()
	if string(key) == voteTermKey {
		g.voteTerm = pairs[voteTermKey]
		g.mu.Unlock()
		return nil
	}
	if string(key) == voteCandidateKey && g.voteTerm != nil {
		pairs[voteTermKey] = g.voteTerm
	}
	for k, v := range pairs {
		if was, ok := g.stable[k]; ok && bytes.Equal(was, v) {
			delete(pairs, k) // on disk already: raft sets its term anew at each start
		}
	}
	g.mu.Unlock()
	if len(pairs) == 0 {
		return nil
	}
	// However long it takes: raft panics when it cannot keep its term.
	return <-g.setAll(pairs).done
}

// setAll begins to store the values durably, in one transaction.
func (g *GroupLog) setAll(pairs map[string][]byte) *storeOp {
	op := &storeOp{
		group: g,
		apply: func(tx *bbolt.Tx) (bool, error) {
			for k, v := range pairs {
				if err := putStable(tx, g.id, []byte(k), v); err != nil {
					return false, err
				}
			}
			return false, nil
		},
		published: func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			for k, v := range pairs {
				g.stable[k] = v
			}
			if bytes.Equal(pairs[voteTermKey], g.voteTerm) {
				g.voteTerm = nil
			}
		},
	}
	g.store.submit(op)
	return op
}

func putStable(tx *bbolt.Tx, id GroupID, key, val []byte) error {
	b, err := tx.CreateBucketIfNotExists(groupBucket('S', id))
	if err != nil {
		return err
	}
	return b.Put(key, val)
}

// Get returns the value, nil when there is none.
func (g *GroupLog) Get(key []byte) ([]byte, error) {
	if err := g.load(); err != nil {
		return nil, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if string(key) == voteTermKey && g.voteTerm != nil {
		return bytes.Clone(g.voteTerm), nil
	}
	return bytes.Clone(g.stable[string(key)]), nil
}

// SetUint64 stores a number durably.
func (g *GroupLog) SetUint64(key []byte, val uint64) error {
	return g.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// GetUint64 returns the number, 0 when there is none.
func (g *GroupLog) GetUint64(key []byte) (uint64, error) {
	v, err := g.Get(key)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	if len(v) != 8 {
		return 0, sundog.Errorf(sundog.Corrupt, "raft log: stable value %q has %d bytes", key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}
