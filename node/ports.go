package node

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/sundog-kv/sundog"
)

// Addrs are the addresses at which others reach a node, host:port, after the
// kernel has chosen the ports that were 0.
type Addrs struct {
	Listen string `json:"listen"` // data and control
	Gossip string `json:"gossip"`
	HTTP   string `json:"http"`
}

// writePorts writes the addresses as JSON, whole or not at all: whoever waits
// for the file never reads half of it.
func writePorts(path string, addrs Addrs) error {
	b, err := json.Marshal(addrs)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return sundog.Errorf(sundog.Invalid, "--ports-file: %w", err)
	}
	defer os.Remove(f.Name()) // no longer there after the rename
	if _, err = f.Write(append(b, '\n')); err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return sundog.Errorf(sundog.Invalid, "--ports-file: %w", err)
	}
	return nil
}
