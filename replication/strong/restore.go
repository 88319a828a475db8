package strong

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// Restore replaces everything by a snapshot. The old tables are hidden, waited
// out and dropped whole before the first byte is loaded, so one copy is enough
// in memory; the new ones, under new incarnations, are shown when the last block
// has been verified. On an error (Corrupt, NoSpace, or the reader's) the replica
// holds nothing and stops, as after an Apply that failed.
func (m *machine) Restore(r io.Reader) error {
	m.lock <- struct{}{}
	defer m.unlock()
	m.restores.Add(1)
	m.guard.publish(nil)
	for _, p := range sortedPools(m.state.pools) {
		p.retired.Store(true)
		p.drop()
	}
	m.state = newState()
	l := loader{m: m, r: blockReader{r: bufio.NewReaderSize(r, blockTarget), sum: xxhash.New()}, state: newState()}
	if err := l.load(); err != nil {
		m.closePools(sortedPools(l.state.pools))
		m.due.Store(neverDeadline)
		m.stop(stopReason(err))
		return err
	}
	m.state = l.state
	m.stopped.Store(nil)
	m.showPools()
	m.showDue()
	return nil
}

// loader reads one snapshot into a fresh state.
type loader struct {
	m     *machine
	r     blockReader
	state *state
	pools uint32 // that the header announced
	last  *pool  // whose items follow
	items uint64
	bytes uint64
}

func (l *loader) load() error {
	t, body, err := l.r.next()
	if err != nil {
		return err
	}
	if err := l.header(t, body); err != nil {
		return err
	}
	for {
		t, body, err := l.r.next()
		if err != nil {
			return err
		}
		switch t {
		case blockPool:
			err = l.pool(body)
		case blockItems:
			err = l.block(body)
		case blockEnd:
			return l.end(body)
		default:
			err = corrupt("block of type %d", t)
		}
		if err != nil {
			return err
		}
	}
}

func (l *loader) header(t blockType, b []byte) error {
	if t != blockHeader || len(b) != headerSize || string(b[:len(snapMagic)]) != snapMagic {
		return corrupt("it does not begin as a partition's snapshot does")
	}
	b = b[len(snapMagic):]
	if v := binary.LittleEndian.Uint16(b); v != snapVersion {
		return corrupt("format version %d; this release reads %d", v, snapVersion)
	}
	if p := sundog.Partition(binary.LittleEndian.Uint16(b[2:])); p != l.m.partition {
		return corrupt("it is of partition %d, not %d", p, l.m.partition)
	}
	s := l.state
	s.index = binary.LittleEndian.Uint64(b[4:])
	s.term = binary.LittleEndian.Uint64(b[12:])
	s.clock = sundog.Clock(binary.LittleEndian.Uint64(b[20:]))
	s.highest = sundog.DecodeVersion(b[28:])
	s.catalog = sundog.Epoch(binary.LittleEndian.Uint64(b[44:]))
	l.pools = binary.LittleEndian.Uint32(b[52:])
	return nil
}

func (l *loader) pool(b []byte) error {
	if len(b) < poolSpecSize {
		return corrupt("pool block of %d bytes", len(b))
	}
	spec := decodePoolSpec(b)
	if spec.id == 0 || l.last != nil && spec.id <= l.last.id {
		return corrupt("pools are not in ascending order")
	}
	p, err := l.m.openPool(spec)
	if err != nil {
		return err
	}
	l.state.pools[spec.id], l.last = p, p
	return nil
}

func (l *loader) block(b []byte) error {
	if l.last == nil || len(b) == 0 {
		return corrupt("items without a pool, or none")
	}
	for len(b) > 0 {
		if len(b) < itemHead {
			return corrupt("an item is cut off")
		}
		k, v := uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
		version := sundog.DecodeVersion(b[8:])
		deadline := int64(binary.LittleEndian.Uint64(b[8+sundog.VersionSize:]))
		if b = b[itemHead:]; k+v > uint64(len(b)) {
			return corrupt("an item of %d + %d bytes in %d", k, v, len(b))
		}
		if err := l.item(b[:k], b[k:k+v], version, deadline); err != nil {
			return err
		}
		b = b[k+v:]
	}
	return nil
}

func (l *loader) item(key, value []byte, version sundog.Version, deadline int64) error {
	if err := sundog.CheckKey(key); err != nil {
		return corrupt("%w", err)
	}
	if version.Compare(l.state.highest) > 0 || deadline < 0 {
		return corrupt("an item at version %s and deadline %d; the highest version is %s", version, deadline, l.state.highest)
	}
	p := l.last
	if _, ok := p.table.Lookup(key); ok {
		return corrupt("a key comes twice")
	}
	if err := p.table.Put(key, value, version, deadline, l.state.term); err != nil {
		return err
	}
	p.changed(key, 0, int64(len(key)+len(value)))
	if deadline != noDeadline {
		l.state.due.push(deadline, p.id, key)
	}
	l.items++
	l.bytes += uint64(len(key) + len(value))
	return nil
}

func (l *loader) end(b []byte) error {
	if len(b) != endSize {
		return corrupt("end block of %d bytes", len(b))
	}
	items, bytes := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if items != l.items || bytes != l.bytes || uint64(l.pools) != uint64(len(l.state.pools)) {
		return corrupt("it ends with %d items of %d bytes in %d pools; %d of %d in %d were announced",
			l.items, l.bytes, len(l.state.pools), items, bytes, l.pools)
	}
	return l.r.eof()
}

func corrupt(format string, args ...any) error {
	return sundog.Errorf(sundog.Corrupt, "snapshot: "+format, args...)
}

// blockReader reads and verifies blocks.
type blockReader struct {
	r   *bufio.Reader
	buf []byte
	sum *xxhash.Digest
}

// next returns the next block; its body is valid until the call after.
func (b *blockReader) next() (blockType, []byte, error) {
	var head [blockHead]byte
	if err := b.fill(head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > uint32(maxBlock) {
		return 0, nil, corrupt("block of %d bytes; at most %d", size, maxBlock)
	}
	b.buf = b.buf[:0]
	for len(b.buf) < int(size) { // room grows with what arrives, not with what is announced
		from := len(b.buf)
		b.buf = append(b.buf, make([]byte, min(int(size)-from, blockTarget))...)
		if err := b.fill(b.buf[from:]); err != nil {
			return 0, nil, err
		}
	}
	b.sum.Write(head[:])
	b.sum.Write(b.buf)
	var sum [blockSum]byte
	if err := b.fill(sum[:]); err != nil {
		return 0, nil, err
	}
	if binary.LittleEndian.Uint64(sum[:]) != b.sum.Sum64() {
		return 0, nil, corrupt("a block fails its checksum")
	}
	return blockType(head[4]), b.buf, nil
}

// fill reads exactly len(p) bytes; a stream that ends before is Corrupt.
func (b *blockReader) fill(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("it is cut off")
	}
	return err
}

// eof checks that nothing follows.
func (b *blockReader) eof() error {
	switch _, err := b.r.ReadByte(); {
	case err == nil:
		return corrupt("bytes after its end")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}
