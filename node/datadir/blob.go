package datadir

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// A blob file is the magic "SDB1", the XXH64 of the payload (little-endian),
// then the payload.
const (
	blobMagic  = "SDB1"
	blobHeader = len(blobMagic) + 8
)

// Peer is a member to look for after a restart.
type Peer struct {
	Node   sundog.NodeID `json:"node"`
	Gossip string        `json:"gossip"` // host:port
}

// SaveMap keeps the bytes of the newest cluster map, durably.
func (d *Dir) SaveMap(data []byte) error { return d.saveBlob(mapName, data) }

// LoadMap returns what SaveMap kept; NotFound before the first, Corrupt when
// the file is damaged (the map is a copy: pull it anew).
func (d *Dir) LoadMap() ([]byte, error) { return d.loadBlob(mapName) }

// SavePeers keeps the list of gossip peers, durably.
func (d *Dir) SavePeers(peers []Peer) error {
	data, err := json.Marshal(peers)
	if err != nil {
		return sundog.Errorf(sundog.Internal, "encode peers: %w", err)
	}
	return d.saveBlob(peersName, data)
}

// LoadPeers returns what SavePeers kept, none before the first; Corrupt when
// the file is damaged (it is a hint: go on with the seeds).
func (d *Dir) LoadPeers() ([]Peer, error) {
	data, err := d.loadBlob(peersName)
	if sundog.KindOf(err) == sundog.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var peers []Peer
	if err := json.Unmarshal(data, &peers); err != nil {
		return nil, sundog.Errorf(sundog.Corrupt, "%s: %w", d.Path(peersName), err)
	}
	return peers, nil
}

func (d *Dir) saveBlob(name string, payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replace(name, encodeBlob(payload))
}

func (d *Dir) loadBlob(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readBlob(name)
}

// readBlob is loadBlob for a caller that holds mu.
func (d *Dir) readBlob(name string) ([]byte, error) {
	data, err := os.ReadFile(d.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sundog.Errorf(sundog.NotFound, "%s: not there", d.Path(name))
	}
	if err != nil {
		return nil, sundog.Errorf(sundog.Internal, "%s: %w", d.Path(name), err)
	}
	payload, ok := decodeBlob(data)
	if !ok {
		return nil, sundog.Errorf(sundog.Corrupt, "%s fails its checksum", d.Path(name))
	}
	return payload, nil
}

func encodeBlob(payload []byte) []byte {
	data := make([]byte, 0, blobHeader+len(payload))
	data = append(data, blobMagic...)
	data = binary.LittleEndian.AppendUint64(data, xxhash.Sum64(payload))
	return append(data, payload...)
}

func decodeBlob(data []byte) ([]byte, bool) {
	if len(data) < blobHeader || string(data[:len(blobMagic)]) != blobMagic {
		return nil, false
	}
	payload := data[blobHeader:]
	return payload, binary.LittleEndian.Uint64(data[len(blobMagic):]) == xxhash.Sum64(payload)
}

// replace swaps a file of the directory for another of the same name so that a
// crash at any instant leaves one of the two whole: write beside, sync, rename,
// sync the directory. The caller holds mu or is the only one that knows d.
func (d *Dir) replace(name string, data []byte) error {
	if d.closed {
		return sundog.Errorf(sundog.Closed, "data directory %s is closed", d.path)
	}
	if err := writeSynced(d.Path(name+tempSuffix), data); err != nil {
		return sundog.Errorf(sundog.Internal, "write %s: %w", d.Path(name), err)
	}
	if err := os.Rename(d.Path(name+tempSuffix), d.Path(name)); err != nil {
		return sundog.Errorf(sundog.Internal, "write %s: %w", d.Path(name), err)
	}
	if err := syncDir(d.path); err != nil {
		return sundog.Errorf(sundog.Internal, "write %s: %w", d.Path(name), err)
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
