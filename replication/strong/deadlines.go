package strong

import (
	"github.com/sundog-kv/sundog"
)

// deadlines is a queue of (deadline, pool, key), earliest first: a binary heap
// whose keys lie in chunks of bytes, so that it costs the collector nothing per
// entry. It is a hint, not the truth: an overwritten or deleted key leaves its
// entry behind, and whoever takes one out compares with the table. The owner
// counts what it leaves behind (stale) and has the queue rebuilt (compact) when
// that outweighs the rest, so the queue stays within twice the keys that have a
// deadline.
//
// It is not safe for concurrent use.
type deadlines struct {
	heap    []due
	chunks  []keyChunk
	current uint32   // the chunk that new keys go to
	free    []uint32 // chunks, other than the current, that hold nothing
	stale   int      // entries whose key has another deadline by now, about
}

// due is one entry; its key is chunks[chunk].bytes[pos : pos+size].
type due struct {
	at    int64 // Unix ms
	pool  sundog.PoolID
	chunk uint32
	pos   uint16
	size  uint16
}

type keyChunk struct {
	bytes []byte
	live  int // entries that point here
}

const (
	keyChunkSize  = 64 << 10 // positions fit uint16; four keys of the longest size
	staleAllowed  = 1024     // entries left behind that are not worth a rebuild
	noDeadline    = int64(0)
	neverDeadline = int64(1<<63 - 1)
)

func (d *deadlines) len() int { return len(d.heap) }

// next returns the earliest deadline, neverDeadline when there is none.
func (d *deadlines) next() int64 {
	if len(d.heap) == 0 {
		return neverDeadline
	}
	return d.heap[0].at
}

// push adds an entry; the key is copied.
func (d *deadlines) push(at int64, pool sundog.PoolID, key []byte) {
	e := due{at: at, pool: pool, size: uint16(len(key))}
	e.chunk, e.pos = d.store(key)
	d.heap = append(d.heap, e)
	d.up(len(d.heap) - 1)
}

// pop takes the earliest entry out. The key is valid until the next push.
func (d *deadlines) pop() (at int64, pool sundog.PoolID, key []byte) {
	e := d.heap[0]
	last := len(d.heap) - 1
	d.heap[0] = d.heap[last]
	d.heap = d.heap[:last]
	d.down(0)
	key = d.key(e)
	d.unref(e.chunk)
	return e.at, e.pool, key
}

// left notes that an entry was left behind.
func (d *deadlines) left() { d.stale++ }

// met notes that an entry which had been left behind was taken out.
func (d *deadlines) met() { d.stale = max(0, d.stale-1) }

// crowded reports whether the queue is worth a rebuild.
func (d *deadlines) crowded() bool { return d.stale > staleAllowed && d.stale > len(d.heap)/2 }

// compact keeps the entries that keep says are true.
func (d *deadlines) compact(keep func(at int64, pool sundog.PoolID, key []byte) bool) {
	old := *d
	*d = deadlines{}
	for _, e := range old.heap {
		if key := old.key(e); keep(e.at, e.pool, key) {
			d.push(e.at, e.pool, key)
		}
	}
}

func (d *deadlines) key(e due) []byte {
	return d.chunks[e.chunk].bytes[e.pos : int(e.pos)+int(e.size)]
}

// store copies the key into the current chunk, or the next one where it is full.
func (d *deadlines) store(key []byte) (chunk uint32, pos uint16) {
	if len(d.chunks) == 0 || len(d.chunks[d.current].bytes)+len(key) > keyChunkSize {
		d.openChunk()
	}
	c := &d.chunks[d.current]
	pos = uint16(len(c.bytes))
	c.bytes = append(c.bytes, key...)
	c.live++
	return d.current, pos
}

// openChunk makes an empty chunk the current one. Numbers of free chunks are
// used again, so that the list of chunks does not grow with time.
func (d *deadlines) openChunk() {
	if n := len(d.free); n > 0 {
		d.current = d.free[n-1]
		d.free = d.free[:n-1]
		return
	}
	d.chunks = append(d.chunks, keyChunk{})
	d.current = uint32(len(d.chunks) - 1)
}

// unref drops one entry's hold on a chunk. The bytes of a chunk that nothing
// points to stay readable until the next push.
func (d *deadlines) unref(chunk uint32) {
	c := &d.chunks[chunk]
	if c.live--; c.live > 0 {
		return
	}
	if chunk == d.current {
		c.bytes = c.bytes[:0]
		return
	}
	c.bytes = nil
	d.free = append(d.free, chunk)
}

func (d *deadlines) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if d.heap[parent].at <= d.heap[i].at {
			return
		}
		d.heap[parent], d.heap[i] = d.heap[i], d.heap[parent]
		i = parent
	}
}

func (d *deadlines) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(d.heap) {
			return
		}
		if right := child + 1; right < len(d.heap) && d.heap[right].at < d.heap[child].at {
			child = right
		}
		if d.heap[i].at <= d.heap[child].at {
			return
		}
		d.heap[i], d.heap[child] = d.heap[child], d.heap[i]
		i = child
	}
}
