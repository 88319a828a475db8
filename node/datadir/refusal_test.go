package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// start is one start of a node on a directory before a fence, which notes what
// became of it, as a node does.
func start(t *testing.T, path string, fence *PeerFence) error {
	t.Helper()
	d := open(t, path)
	defer d.Close()
	err := fence.Check(d.ID(), d.Boot(), d.Nonce())
	if err != nil {
		require.NoError(t, d.NoteRefusal(sundog.AsError(err).Msg))
		return err
	}
	require.NoError(t, d.NoteAdmission())
	return nil
}

// A restored directory under a supervisor that restarts it after each refusal
// never catches up with the fence, whether its node runs on or not.
func TestRestartsDoNotPassTheFence(t *testing.T) {
	for _, later := range []int{1, 2, 5} {
		path, old := t.TempDir(), filepath.Join(t.TempDir(), "backup")
		fence := NewPeerFence()
		require.NoError(t, start(t, path, fence))
		require.NoError(t, os.CopyFS(old, os.DirFS(path)))
		for range later {
			require.NoError(t, start(t, path, fence)) // votes and acknowledges meanwhile
		}
		for try := range 3 * (later + 1) {
			require.ErrorIs(t, start(t, old, fence), sundog.Conflict, "start %d of the restored directory", try+1)
		}
		require.NoError(t, start(t, path, fence), "the original goes on")
	}
}

// A start that one peer refused by mistake is, when repeated, still the one that
// the others have met.
func TestRefusedStartIsRepeated(t *testing.T) {
	honest := NewPeerFence()
	d := open(t, t.TempDir())
	boot, nonce := d.Boot(), d.Nonce()
	require.NoError(t, honest.Check(d.ID(), boot, nonce))
	for range 3 {
		require.NoError(t, d.NoteRefusal("older than one already seen"))
		d = reopen(t, d)
		require.Equal(t, boot, d.Boot())
		require.Equal(t, nonce, d.Nonce())
		require.NoError(t, honest.Check(d.ID(), d.Boot(), d.Nonce()))
	}
	require.NoError(t, d.NoteAdmission())
	d = reopen(t, d)
	require.Equal(t, boot+1, d.Boot())
	require.NotEqual(t, nonce, d.Nonce())
	require.NoError(t, honest.Check(d.ID(), d.Boot(), d.Nonce()))
}

func TestFencedForGood(t *testing.T) {
	d := open(t, t.TempDir())
	require.NoError(t, d.Fence("the cluster has seen start 9"))
	require.NoError(t, d.Fence("another reason"))
	require.NoError(t, d.NoteAdmission())
	require.NoError(t, d.Close())
	for range 3 {
		_, err := Open(d.path, now)
		require.ErrorIs(t, err, sundog.Conflict)
		require.ErrorContains(t, err, "the cluster has seen start 9")
		require.ErrorContains(t, err, "move it away")
	}
}

func TestPeerFenceAbove(t *testing.T) {
	f := NewPeerFence()
	_, above := f.Above(1, 9)
	require.False(t, above, "never met")
	require.NoError(t, f.Check(1, 3, 7))
	known, above := f.Above(1, 4)
	require.True(t, above)
	require.EqualValues(t, 3, known)
	_, above = f.Above(1, 3)
	require.False(t, above)
}
