package strong

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane/table"
	"github.com/sundog-kv/sundog/replication/raftgroup"
)

// The snapshot format, laid out in docs/strong.md: a stream of blocks, each a
// u32 length, a type byte, that many bytes, and the xxhash64 of all bytes of the
// stream so far but the sums, so that no block can be lost, doubled or moved.
const (
	snapMagic   = "SDGPART1"
	snapVersion = 1

	blockHead = 4 + 1
	blockSum  = 8
	// blockTarget is the size at which a block of items is closed, after the item
	// that reaches it.
	blockTarget = 64 << 10
	maxBlock    = blockTarget + itemHead + sundog.MaxKey + maxStoredValue
	itemHead    = 4 + 4 + sundog.VersionSize + 8
	// maxStoredValue bounds what a decoder accepts; pools allow less.
	maxStoredValue = 16 << 20
	headerSize     = len(snapMagic) + 2 + 2 + 8 + 8 + 8 + sundog.VersionSize + 8 + 4
	endSize        = 8 + 8
)

type blockType byte

const (
	blockHeader blockType = 1
	blockPool   blockType = 2
	blockItems  blockType = 3 // of the pool block before it
	blockEnd    blockType = 4
)

// snapshot is a consistent cut of the state: small fields copied, tables as cuts.
type snapshot struct {
	header  []byte
	pools   []*snapshotPool
	release sync.Once
}

type snapshotPool struct {
	pool *pool
	spec poolSpec
	cut  *table.Cut
}

// Snapshot opens a cut of every table at this instant. It copies nothing but
// the small state.
func (m *machine) Snapshot() (raftgroup.Snapshot, error) {
	m.lock <- struct{}{}
	defer m.unlock()
	if err := m.stopped.Load(); err != nil {
		return nil, err
	}
	s := &snapshot{header: m.state.header(m.partition)}
	for _, p := range sortedPools(m.state.pools) {
		p.hold()
		s.pools = append(s.pools, &snapshotPool{pool: p, spec: *p.spec.Load(), cut: p.table.Cut()})
	}
	return s, nil
}

func (s *state) header(partition sundog.Partition) []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, snapMagic...)
	b = binary.LittleEndian.AppendUint16(b, snapVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(partition))
	b = binary.LittleEndian.AppendUint64(b, s.index)
	b = binary.LittleEndian.AppendUint64(b, s.term)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.clock))
	b = s.highest.Append(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.catalog))
	return binary.LittleEndian.AppendUint32(b, uint32(len(s.pools)))
}

// WriteTo streams the snapshot; Apply goes on beside it. It fails with Closed
// when the replica is restored or closed meanwhile.
func (s *snapshot) WriteTo(w io.Writer) (int64, error) {
	b := newBlockWriter(w)
	b.block(blockHeader, s.header)
	var items, bytes uint64
	for _, p := range s.pools {
		b.block(blockPool, appendPoolSpec(nil, p.spec))
		n, size, err := p.write(b)
		if err != nil {
			return b.n, err
		}
		items, bytes = items+n, bytes+size
	}
	end := binary.LittleEndian.AppendUint64(nil, items)
	b.block(blockEnd, binary.LittleEndian.AppendUint64(end, bytes))
	if b.err == nil {
		b.err = b.w.Flush()
	}
	return b.n, b.err
}

// write streams one pool's items and returns their number and their bytes of
// keys and values.
func (p *snapshotPool) write(b *blockWriter) (items, size uint64, err error) {
	buf := make([]byte, 0, blockTarget+blockTarget/4)
	for b.err == nil {
		if p.pool.retired.Load() {
			return 0, 0, sundog.Errorf(sundog.Closed, "snapshot ends early: the replica was restored or closed")
		}
		e, ok := p.cut.Next()
		if !ok {
			b.fail(p.cut.Err())
			break
		}
		buf = appendItem(buf, e.Key, e.Value, e.Version, e.Deadline)
		items++
		size += uint64(len(e.Key) + len(e.Value))
		if len(buf) >= blockTarget {
			b.block(blockItems, buf)
			buf = buf[:0]
		}
	}
	if len(buf) > 0 {
		b.block(blockItems, buf)
	}
	return items, size, b.err
}

func appendItem(b, key, value []byte, v sundog.Version, deadline int64) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	b = v.Append(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(deadline))
	b = append(b, key...)
	return append(b, value...)
}

// Release closes the cuts; it may be called more than once.
func (s *snapshot) Release() {
	s.release.Do(func() {
		for _, p := range s.pools {
			p.cut.Close()
			p.pool.drop()
		}
	})
}

// blockWriter writes blocks and keeps the first error.
type blockWriter struct {
	w   *bufio.Writer
	n   int64
	err error
	sum *xxhash.Digest
}

func newBlockWriter(w io.Writer) *blockWriter {
	return &blockWriter{w: bufio.NewWriterSize(w, blockTarget), sum: xxhash.New()}
}

func (b *blockWriter) block(t blockType, body []byte) {
	var head [blockHead]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(body)))
	head[4] = byte(t)
	b.sum.Write(head[:]) // a hash never fails
	b.sum.Write(body)
	b.write(head[:])
	b.write(body)
	b.write(binary.LittleEndian.AppendUint64(nil, b.sum.Sum64()))
}

// fail keeps err where it is the first.
func (b *blockWriter) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *blockWriter) write(p []byte) {
	if b.err != nil {
		return
	}
	n, err := b.w.Write(p)
	b.n += int64(n)
	b.err = err
}
