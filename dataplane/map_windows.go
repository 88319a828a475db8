package dataplane

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapping is memory committed from the system, outside Go's heap.
type mapping struct {
	bytes []byte
	addr  uintptr
}

func mapRegion(size int64) (mapping, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		scarce := errors.Is(err, windows.ERROR_NOT_ENOUGH_MEMORY) || errors.Is(err, windows.ERROR_COMMITMENT_LIMIT)
		return mapping{}, mapError("VirtualAlloc", size, scarce, err)
	}
	// The address comes from the system and names no Go object, so converting
	// it hides nothing from the collector.
	base := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return mapping{bytes: unsafe.Slice((*byte)(base), int(size)), addr: addr}, nil
}

func (m *mapping) close() error {
	m.bytes = nil
	return windows.VirtualFree(m.addr, 0, windows.MEM_RELEASE)
}
