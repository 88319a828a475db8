package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sundog-kv/sundog"
)

// errLocked is what tryLock returns when another open file holds the lock.
var errLocked = errors.New("locked")

// acquireLock opens and locks the lock file and writes this process's id into
// it, for the message that the next one prints. The lock ends with the process,
// however it ends.
func acquireLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "data directory %s: %w", dir, err)
	}
	if err := tryLock(f); err != nil {
		f.Close()
		if !errors.Is(err, errLocked) {
			return nil, sundog.Errorf(sundog.Invalid, "data directory %s: cannot lock %s: %w", dir, lockName, err)
		}
		return nil, sundog.Errorf(sundog.Conflict, "data directory %s is in use by %s: stop it, or use another directory", dir, holder(path))
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, sundog.Errorf(sundog.Invalid, "data directory %s: %w", dir, err)
	}
	return f, nil
}

// holder names who holds the lock, as far as the file tells.
func holder(path string) string {
	data, err := os.ReadFile(path)
	pid, errPid := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || errPid != nil {
		return "another process"
	}
	return "process " + strconv.Itoa(pid)
}
