//go:build unix && !linux

package dataplane

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mapping is anonymous memory: this system has no sealed memory files.
type mapping struct{ bytes []byte }

func mapRegion(size int64) (mapping, error) {
	bytes, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return mapping{}, mapError("mmap", size, errors.Is(err, unix.ENOMEM), err)
	}
	return mapping{bytes: bytes}, nil
}

func (m *mapping) close() error {
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	return err
}
