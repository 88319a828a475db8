//go:build windows

package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockOffset is beyond any content: a Windows lock is mandatory for the bytes it
// covers, and the process id at the start must stay readable.
const lockOffset = 1 << 30

func tryLock(f *os.File) error {
	at := windows.Overlapped{Offset: lockOffset}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

func releaseLock(f *os.File) error {
	at := windows.Overlapped{Offset: lockOffset}
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// syncDir does nothing: Windows cannot sync a directory, and its journal orders
// the rename after the synced write of the file.
func syncDir(string) error { return nil }
