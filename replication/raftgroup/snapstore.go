package raftgroup

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// A snapshot is one file, "term-index.snap" in hexadecimal, little-endian:
//
//	8 B magic, u32 length of the configuration, u64 index, u64 term,
//	u64 configuration index, u64 size of the body, u64 xxhash64 of the body,
//	u32 CRC-32C of all that and the configuration, configuration, body
//
// It is written as "*.tmp", synced, renamed, and the folder synced: a snapshot
// is there whole or not at all.
const (
	snapMagic  = "SDSNAP\x00\x01"
	snapFixed  = 8 + 4 + 8*5 + 4
	snapSuffix = ".snap"
	tempSuffix = ".tmp"
	maxConfig  = 1 << 20
)

// snapshotStore is a raft.SnapshotStore of one group that keeps the newest
// snapshot only, by index: the log is cut up to it, so an older one would be of
// no use, and must never take its place.
type snapshotStore struct {
	dir string
	// taken is told of each snapshot that is on disk, before the older one goes.
	taken func(index, term uint64) error
	// may, if set, is asked before a snapshot up to index is begun.
	may func(index uint64) error
	// closing is held while a finished snapshot takes its place.
	closing sync.Mutex
}

func openSnapshots(dir string, taken func(index, term uint64) error) (*snapshotStore, error) {
	s := &snapshotStore{dir: dir, taken: taken}
	if err := makeDirs(dir); err != nil {
		return nil, sundog.Errorf(sundog.Unavailable, "raft snapshots: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+tempSuffix))
	if err != nil {
		return nil, sundog.Errorf(sundog.Internal, "raft snapshots: %w", err)
	}
	for _, name := range left { // of a process that died while writing
		if err := os.Remove(name); err != nil {
			return nil, sundog.Errorf(sundog.Unavailable, "raft snapshots: %w", err)
		}
	}
	return s, nil
}

// newest returns the index and term of the newest snapshot, 0 for none.
func (s *snapshotStore) newest() (index, term uint64, err error) {
	metas, err := s.List()
	if err != nil || len(metas) == 0 {
		return 0, 0, err
	}
	return metas[0].Index, metas[0].Term, nil
}

// List returns the snapshots, newest first; one whose header is damaged is an
// error, since the log up to it is gone.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+snapSuffix))
	if err != nil {
		return nil, err
	}
	var metas []*raft.SnapshotMeta
	for _, name := range names {
		f, meta, _, err := openSnapshot(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // reaped meanwhile
		}
		if err != nil {
			return nil, err
		}
		_ = f.Close()
		metas = append(metas, meta)
	}
	slices.SortFunc(metas, func(a, b *raft.SnapshotMeta) int {
		return cmp.Or(cmp.Compare(b.Index, a.Index), cmp.Compare(b.Term, a.Term))
	})
	return metas, nil
}

// openSnapshot opens the file and reads its header; the file stands at the body.
func openSnapshot(name string) (*os.File, *raft.SnapshotMeta, uint64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, 0, err
	}
	meta, sum, err := readSnapshotHeader(f)
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, sundog.Errorf(sundog.Corrupt, "raft snapshot %s: %w", name, err)
	}
	meta.ID = strings.TrimSuffix(filepath.Base(name), snapSuffix)
	return f, meta, sum, nil
}

func readSnapshotHeader(r io.Reader) (*raft.SnapshotMeta, uint64, error) {
	fixed := make([]byte, snapFixed)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return nil, 0, noEOF(err)
	}
	d := decoder{b: fixed}
	magic := string(d.bytes(8))
	n := d.u32()
	meta := &raft.SnapshotMeta{Version: 1, Index: d.u64(), Term: d.u64(), ConfigurationIndex: d.u64(), Size: int64(d.u64())}
	sum, crc := d.u64(), d.u32()
	if magic != snapMagic || n > maxConfig || meta.Size < 0 {
		return nil, 0, sundog.Errorf(sundog.Corrupt, "not a snapshot of this format")
	}
	config := make([]byte, n)
	if _, err := io.ReadFull(r, config); err != nil {
		return nil, 0, noEOF(err)
	}
	if crc != snapshotHeaderSum(fixed, config) {
		return nil, 0, sundog.Errorf(sundog.Corrupt, "header fails its checksum")
	}
	var err error
	meta.Configuration, err = decodeConfiguration(config)
	return meta, sum, err
}

func snapshotHeaderSum(fixed, config []byte) uint32 {
	return crc32.Update(crc32.Checksum(fixed[:snapFixed-4], crcTable), crcTable, config)
}

func snapshotHeader(meta *raft.SnapshotMeta, config []byte, sum uint64) []byte {
	b := append(make([]byte, 0, snapFixed+len(config)), snapMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(config)))
	for _, v := range []uint64{meta.Index, meta.Term, meta.ConfigurationIndex, uint64(meta.Size), sum} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, crcTable), crcTable, config))
	return append(b, config...)
}

// Open returns a snapshot's body, whose reader ends with an error of kind
// Corrupt instead of io.EOF when the bytes are not those written.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, meta, sum, err := openSnapshot(filepath.Join(s.dir, id+snapSuffix))
	if err != nil {
		return nil, nil, err
	}
	return meta, &snapshotBody{f: f, r: bufio.NewReaderSize(f, 256<<10), left: meta.Size, hash: xxhash.New(), sum: sum}, nil
}

type snapshotBody struct {
	f    *os.File
	r    *bufio.Reader
	left int64
	hash *xxhash.Digest
	sum  uint64
}

// Read is of io.Reader.
func (b *snapshotBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		if b.hash.Sum64() != b.sum {
			return 0, sundog.Errorf(sundog.Corrupt, "raft snapshot %s fails its checksum", b.f.Name())
		}
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	_, _ = b.hash.Write(p[:n]) // never fails
	b.left -= int64(n)
	if err == io.EOF {
		err = sundog.Errorf(sundog.Corrupt, "raft snapshot %s is cut short", b.f.Name())
	}
	return n, err
}

// Close is of io.Closer.
func (b *snapshotBody) Close() error { return b.f.Close() }

// Create begins a snapshot. raft calls it for its own and for received ones.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, sundog.Errorf(sundog.Invalid, "raft snapshot version %d", version)
	}
	if s.may != nil {
		if err := s.may(index); err != nil {
			return nil, err
		}
	}
	id := fmt.Sprintf("%016x-%016x", term, index)
	f, err := os.CreateTemp(s.dir, id+"-*"+tempSuffix)
	if err != nil {
		return nil, err
	}
	k := &snapshotSink{
		store: s, f: f, w: bufio.NewWriterSize(f, 256<<10), hash: xxhash.New(),
		meta:   raft.SnapshotMeta{ID: id, Index: index, Term: term, ConfigurationIndex: configurationIndex},
		config: raft.EncodeConfiguration(configuration),
	}
	if _, err := k.w.Write(snapshotHeader(&k.meta, k.config, 0)); err != nil {
		return nil, errors.Join(err, k.Cancel())
	}
	return k, nil
}

// snapshotSink writes one snapshot.
type snapshotSink struct {
	store  *snapshotStore
	f      *os.File
	w      *bufio.Writer
	hash   *xxhash.Digest
	meta   raft.SnapshotMeta
	config []byte
	closed bool
}

// ID is the snapshot's name.
func (k *snapshotSink) ID() string { return k.meta.ID }

// Write is of io.Writer.
func (k *snapshotSink) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	_, _ = k.hash.Write(p[:n]) // never fails
	k.meta.Size += int64(n)
	return n, err
}

// Cancel gives the snapshot up; after Close it does nothing.
func (k *snapshotSink) Cancel() error {
	if k.closed {
		return nil
	}
	k.closed = true
	return errors.Join(k.f.Close(), os.Remove(k.f.Name()))
}

// Close makes the snapshot durable and the newest one. One that is older than
// the newest by then is dropped, with an error of kind Conflict: raft then takes
// it for not taken.
func (k *snapshotSink) Close() error {
	if k.closed {
		return nil
	}
	if err := k.finish(); err != nil {
		return errors.Join(err, k.Cancel())
	}
	k.store.closing.Lock()
	defer k.store.closing.Unlock()
	newest, _, err := k.store.newest()
	if err == nil && newest > k.meta.Index {
		err = sundog.Errorf(sundog.Conflict, "raft snapshot up to %d: there is one up to %d", k.meta.Index, newest)
	}
	if err != nil {
		return errors.Join(err, k.Cancel())
	}
	k.closed = true
	if err := k.f.Close(); err != nil {
		return errors.Join(err, os.Remove(k.f.Name()))
	}
	final := filepath.Join(k.store.dir, k.meta.ID+snapSuffix)
	if err := os.Rename(k.f.Name(), final); err != nil {
		return errors.Join(err, os.Remove(k.f.Name()))
	}
	if err := syncDir(k.store.dir); err != nil {
		return err
	}
	if err := k.store.taken(k.meta.Index, k.meta.Term); err != nil {
		return err
	}
	k.store.reap(final)
	return nil
}

func (k *snapshotSink) finish() error {
	if err := k.w.Flush(); err != nil {
		return err
	}
	if _, err := k.f.WriteAt(snapshotHeader(&k.meta, k.config, k.hash.Sum64()), 0); err != nil {
		return err
	}
	return k.f.Sync()
}

// reap removes all snapshots but one. What cannot be removed now (on some
// systems a file that is being read) goes the next time.
func (s *snapshotStore) reap(keep string) {
	names, _ := filepath.Glob(filepath.Join(s.dir, "*"+snapSuffix)) // the pattern is legal
	for _, name := range names {
		if name != keep {
			_ = os.Remove(name)
		}
	}
}

// makeDirs makes the folder and those above it, and makes their names durable:
// a snapshot in a folder that a crash takes away is no snapshot. Parent and
// grandparent are synced at each open, since whoever made the folder before may
// have died before that.
func makeDirs(dir string) error {
	above := []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))}
	for d := above[1]; d != filepath.Dir(d); {
		if _, err := os.Stat(d); err == nil {
			break
		}
		d = filepath.Dir(d)
		above = append(above, d)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range above {
		// What may not be read was there before, and is not this store's.
		if err := syncDir(d); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a folder cannot be synced there; renames are journalled
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
