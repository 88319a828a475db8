package dataplane

import (
	"errors"

	"golang.org/x/sys/unix"
)

// hugePage is the usual size of a transparent huge page; smaller regions do
// not ask for one.
const hugePage = 2 << 20

// mapping is a shared mapping of a sealed memfd.
type mapping struct {
	bytes []byte
	fd    int // read-write, of mode 0400: only this process writes through it
}

// mapRegion makes the memfd. The order matters: the size is set before the
// seals fix it, and F_SEAL_SEAL closes the set. F_SEAL_FUTURE_WRITE is left out
// on purpose: it would forbid giving pages back by hole punching to us as well
// (DESIGN section 8). Mode 0400 and a read-only descriptor, reopened for each
// receiver, keep other users from writing instead.
func mapRegion(size int64) (mapping, error) {
	fd, err := createMemfd()
	if err != nil {
		return mapping{}, mapError("memfd_create", size, scarce(err), err)
	}
	fail := func(what string, err error) (mapping, error) {
		unix.Close(fd)
		return mapping{}, mapError(what, size, scarce(err), err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return fail("ftruncate", err)
	}
	if err := unix.Fchmod(fd, 0o400); err != nil {
		return fail("fchmod", err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fail("add seals", err)
	}
	bytes, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fail("mmap", err)
	}
	if size >= hugePage {
		// Advice only: without huge pages for shared memory the region simply
		// has small ones.
		_ = unix.Madvise(bytes, unix.MADV_HUGEPAGE)
	}
	return mapping{bytes: bytes, fd: fd}, nil
}

// createMemfd asks for a descriptor whose memory can never be executed; a
// kernel before 6.3 does not know that flag and gets the request without it.
func createMemfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("sundog-region", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("sundog-region", flags)
	}
	return fd, err
}

func scarce(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) ||
		errors.Is(err, unix.ENOSPC)
}

func (m *mapping) close() error {
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	return errors.Join(err, unix.Close(m.fd))
}
