package table

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// geometry says where the groups lie. A value never changes once a reader can
// have it; resizing makes a new one.
type geometry struct {
	epoch  uint64
	groups uint32
	segs   []segment
}

// segment is a run of groups in the arena.
type segment struct {
	b  []byte
	at address
}

// segmentOf is the segment that a group lies in, and its place there: the first
// holds firstGroups, every other one segmentGroups.
func segmentOf(group uint32) (seg, in uint32) {
	v := uint64(group) + segmentGroups - firstGroups
	seg, in = uint32(v/segmentGroups), uint32(v%segmentGroups)
	if seg == 0 {
		in -= segmentGroups - firstGroups
	}
	return seg, in
}

// segmentSize is the bytes of segment number seg.
func segmentSize(seg int) int {
	if seg == 0 {
		return firstGroups * groupSize
	}
	return segmentGroups * groupSize
}

// group returns the bytes and the address of a group, which exists.
func (g *geometry) group(i uint32) ([]byte, address) {
	seg, in := segmentOf(i)
	s := &g.segs[seg]
	return s.b[in*groupSize:][:groupSize:groupSize], s.at.plus(int(in) * (groupSize / granule))
}

// segmentList is the directory in registered memory: the addresses of the
// segments, 8 bytes each.
type segmentList struct {
	b     []byte
	at    address
	class uint8
}

const firstDirectory = 64 // bytes

// allocIndex allocates index memory and counts it.
func (t *Table) allocIndex(size int) ([]byte, address, uint8, error) {
	class := classOf(size)
	at, err := t.arena.alloc(class, true)
	if err != nil {
		return nil, 0, 0, err
	}
	t.stats.IndexBytes += int64(classSize(class))
	return t.arena.bytes(at, classSize(class))[:size], at, class, nil
}

func (t *Table) discardIndex(at address, class uint8) {
	t.stats.IndexBytes -= int64(classSize(class))
	t.arena.discard(at, class, true)
}

func (t *Table) retireIndex(at address, class uint8) {
	t.stats.IndexBytes -= int64(classSize(class))
	t.arena.retire(at, class, true)
}

// create lays out an empty table: header, directory, one group.
func (t *Table) create() error {
	header, headerAt, headerClass, err := t.allocIndex(headSize)
	if err != nil {
		return err
	}
	dir, dirAt, dirClass, err := t.allocIndex(firstDirectory)
	if err != nil {
		t.discardIndex(headerAt, headerClass)
		return err
	}
	seg, segAt, _, err := t.allocIndex(segmentSize(0))
	if err != nil {
		t.discardIndex(dirAt, dirClass)
		t.discardIndex(headerAt, headerClass)
		return err
	}
	clear(header)
	t.header, t.headerAt = header, headerAt
	t.directory = segmentList{dir, dirAt, dirClass}
	storeWord(dir, 0, uint64(segAt))
	geo := &geometry{epoch: 1, groups: 1, segs: []segment{{seg, segAt}}}
	g, at := geo.group(0)
	for k := range bucketKinds {
		initBucket(bucket{g[k*bucketSize:][:bucketSize], at.plus(k * bucketSize / granule)}, t.incarnation, geo.epoch, 0, 0, k)
	}
	t.publish(geo)
	return nil
}

// publish makes geo the geometry of every look that begins now, in the header
// for one-sided readers and behind the pointer for local ones.
func (t *Table) publish(geo *geometry) {
	t.cur = geo
	t.writeHeader()
	t.geo.Store(geo)
}

// writeHeader writes the table's header. Its sum covers all but the active
// term, which is one aligned word that changes by itself.
func (t *Table) writeHeader() {
	h := t.header
	storeWord(h, headMagic, tableMagic|formatVersion<<32|uint64(t.partition)<<48)
	storeWord(h, headIncarnation, t.incarnation)
	storeWord(h, headEpoch, t.cur.epoch)
	storeWord(h, headGroups, uint64(t.cur.groups)|uint64(len(t.cur.segs))<<32)
	storeWord(h, headDirectory, uint64(t.directory.at)|uint64(t.directory.class)<<addressBits)
	storeWord(h, headReserved, 0)
	storeWord(h, headSum, headerBlockSum(h))
}

func headerBlockSum(h []byte) uint64 {
	var b [headSize - 16]byte
	for i, off := range []int{headMagic, headIncarnation, headEpoch, headGroups, headDirectory, headReserved} {
		binary.LittleEndian.PutUint64(b[8*i:], loadWord(h, off))
	}
	return xxhash.Sum64(b[:])
}

// addSegment appends a segment to the geometry that is being made. Errors:
// NoSpace; nothing has changed then but, perhaps, the size of the directory.
func (t *Table) addSegment(next *geometry) error {
	n := len(next.segs)
	if (n+1)*8 > len(t.directory.b) {
		if err := t.growDirectory(); err != nil {
			return err
		}
	}
	b, at, _, err := t.allocIndex(segmentSize(n))
	if err != nil {
		return err
	}
	storeWord(t.directory.b, 8*n, uint64(at))
	// Appending writes only behind what older geometries look at: shrinking
	// clips the capacity (dropSegment).
	next.segs = append(next.segs, segment{b, at})
	return nil
}

func (t *Table) growDirectory() error {
	old := t.directory
	b, at, class, err := t.allocIndex(2 * len(old.b))
	if err != nil {
		return err
	}
	clear(b)
	copy(b, old.b)
	t.directory = segmentList{b, at, class}
	t.writeHeader()
	t.retireIndex(old.at, old.class)
	return nil
}

// destroy gives all memory of the table back. Readers that are still inside are
// waited for by the quarantine.
func (t *Table) destroy() {
	for g := range t.cur.groups {
		for _, k := range t.buckets(g) {
			for i := range k.words() {
				if w := k.word(i); w != 0 && !w.inline() {
					t.arena.retire(w.at(), w.class(), false)
				}
			}
			if k.kind() == kindExtra {
				t.retireIndex(k.at, bucketClass)
			}
		}
	}
	for i, s := range t.cur.segs {
		t.retireIndex(s.at, classOf(segmentSize(i)))
	}
	t.retireIndex(t.directory.at, t.directory.class)
	t.retireIndex(t.headerAt, classOf(headSize))
	t.cur, t.header, t.directory = nil, nil, segmentList{}
	t.arena.removeTable(t)
}

// Close gives the table's memory back to the arena. Reads that begin afterwards
// find nothing; those that are under way end as if they had come before. Open
// cuts stay readable, and what they need is given back when they are closed.
// Closing twice is harmless.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	storeWord(t.header, headActive, 0)
	t.geo.Store(nil)
	if len(t.cuts) == 0 {
		t.destroy()
	}
}
