package raftgroup

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// TestShortFile: a file that was cut while nobody had it open is refused as
// Corrupt, wherever the cut is; bbolt alone would fault.
func TestShortFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s, err := OpenStore(path, StoreConfig{})
	require.NoError(t, err)
	for id := range GroupID(8) {
		for i := range uint64(50) {
			require.NoError(t, s.Group(id).StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 700)}))
		}
	}
	require.NoError(t, s.Close())
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		short := filepath.Join(t.TempDir(), "raft.db")
		at := rng.IntN(len(good) / 2) // the file is preallocated: its end may be unused
		require.NoError(t, os.WriteFile(short, good[:at], 0o600))
		_, err := OpenStore(short, StoreConfig{Openings: 1})
		require.ErrorIs(t, err, sundog.Corrupt, "cut at %d of %d", at, len(good))
	}
	s, err = OpenStore(path, StoreConfig{Openings: 1})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestOldCopy: a file that was opened less often than is known is refused.
func TestOldCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	for want := uint64(1); want <= 3; want++ {
		s, err := OpenStore(path, StoreConfig{Openings: want - 1})
		require.NoError(t, err)
		require.Equal(t, want, s.Openings())
		require.NoError(t, s.Close())
	}
	_, err := OpenStore(path, StoreConfig{Openings: 4})
	require.ErrorIs(t, err, sundog.Corrupt)
	require.NoError(t, os.Truncate(path, 0))
	_, err = OpenStore(path, StoreConfig{Openings: 4})
	require.ErrorIs(t, err, sundog.Corrupt)
}
