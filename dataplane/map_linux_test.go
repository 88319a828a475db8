package dataplane

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSealed: the memory file can be neither shrunk, grown nor sealed further,
// nobody but its owner may read it and nobody may open it to write, a read-only
// descriptor of it shows the bytes and maps read-only, and its pages can still
// be given back by punching a hole.
func TestSealed(t *testing.T) {
	r, err := NewMemory(4 << 20).Map(4 << 20)
	require.NoError(t, err)
	defer r.Close()
	fd := r.mapping.fd
	require.Error(t, unix.Ftruncate(fd, 0))
	require.Error(t, unix.Ftruncate(fd, 8<<20))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	require.NoError(t, err)
	require.Equal(t, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL, seals&(unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL))
	require.Zero(t, seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.Equal(t, uint32(0o400), st.Mode&0o777)

	copy(r.Bytes()[100:], "seen")
	ro, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(ro)
	_, err = unix.Mmap(ro, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.ErrorIs(t, err, unix.EACCES)
	view, err := unix.Mmap(ro, 0, 4<<20, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(view)) }()
	require.Equal(t, "seen", string(view[100:104]))

	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	require.NoError(t, unix.Fallocate(fd, hole, 0, 4<<20))
	require.Equal(t, byte(0), view[100])
	require.Equal(t, byte(0), r.Bytes()[100])
}
