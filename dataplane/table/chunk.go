package table

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/dataplane"
)

// Chunks are mapped in these sizes: a 128th of what the heap has
// already, within the bounds, so that little is mapped in vain and a large pool
// has few regions; smaller ones where the budget's last bytes ask for it.
const (
	chunkMin   = 256 << 10
	chunkMax   = maxChunk
	chunkLeast = 2 * pageSize
	chunkShare = 128
)

// page describes a page of a chunk; the first page of a span describes the
// span. It has no pointers, so that large arenas cost the collector nothing.
type page struct {
	free       [maxSlots / 64]uint64 // free slots, one bit each
	prev, next spanRef               // in the heap's list of spans of this class with a free slot
	head       uint16                // pages back to the first page of the span
	run        uint16                // pages of the span; 0: this page is free (first pages only)
	slots      uint16
	freeSlots  uint16
	class      uint8
	listed     bool
}

// spanRef names a span: chunk number times 2^16 plus its first page; 0 is none.
type spanRef uint64

func (r spanRef) chunk() uint32 { return uint32(r >> 16) }
func (r spanRef) page() int     { return int(r & 0xffff) }

// chunk is one region cut in pages.
type chunk struct {
	id     uint32
	region *dataplane.Region
	bytes  []byte
	pages  []page
	taken  []uint64    // pages in use, one bit each
	free   int         // free pages
	live   int64       // bytes of allocated slots
	evac   atomic.Bool // being emptied: nothing new is put here; read without the lock
}

func newChunk(id uint32, region *dataplane.Region) *chunk {
	n := int(region.Size()) / pageSize
	return &chunk{
		id: id, region: region, bytes: region.Bytes(),
		pages: make([]page, n), taken: make([]uint64, (n+63)/64), free: n,
	}
}

// run finds n free pages in a row and takes them.
func (c *chunk) run(n int) (first int, ok bool) {
	if c.free < n {
		return 0, false
	}
	for at := 0; at+n <= len(c.pages); {
		used := c.nextTaken(at, at+n)
		if used < 0 {
			for i := at; i < at+n; i++ {
				c.taken[i>>6] |= 1 << (i & 63)
			}
			c.free -= n
			return at, true
		}
		at = used + 1
	}
	return 0, false
}

// nextTaken is the last page in use in [from, to), or -1.
func (c *chunk) nextTaken(from, to int) int {
	for i := to - 1; i >= from; i-- {
		w := c.taken[i>>6] << (63 - i&63) // page i in the top bit
		if w == 0 {
			i -= i & 63 // the rest of this word is free
			continue
		}
		i -= bits.LeadingZeros64(w)
		if i < from {
			return -1
		}
		return i
	}
	return -1
}

func (c *chunk) giveBack(first, n int) {
	for i := first; i < first+n; i++ {
		c.taken[i>>6] &^= 1 << (i & 63)
	}
	c.free += n
}

func (c *chunk) empty() bool { return c.free == len(c.pages) }

// heap allocates slots of one purpose (items, or index) from its chunks. The
// arena's mutex guards it.
type heap struct {
	arena    *Arena
	partial  [maxClass + 1]spanRef // spans of a class with a free slot
	chunks   []*chunk              // by id
	reserved int64
	live     int64
	spare    *chunk // an empty chunk that is kept

	// free counts the free slots of a class in spans that take new ones: those
	// in the lists.
	free [maxClass + 1]int64
}

func (h *heap) span(r spanRef) *page { return &h.arena.chunk(r.chunk()).pages[r.page()] }

// alloc returns a free slot of the class.
func (h *heap) alloc(class uint8) (address, error) {
	ref := h.partial[class]
	if ref == 0 {
		var err error
		if ref, err = h.newSpan(class); err != nil {
			return 0, err
		}
	}
	c, p := h.arena.chunk(ref.chunk()), h.span(ref)
	slot := 0
	for i, free := range p.free {
		if free != 0 {
			slot = i*64 + bits.TrailingZeros64(free)
			p.free[i] &= free - 1
			break
		}
	}
	p.freeSlots--
	h.free[class]--
	if p.freeSlots == 0 {
		h.unlist(ref, p)
	}
	size := classSize(class)
	h.live += int64(size)
	c.live += int64(size)
	return makeAddress(c.id, ref.page()*pageSize+slot*size), nil
}

func (h *heap) newSpan(class uint8) (spanRef, error) {
	pages := spanPages(class)
	c, first, err := h.findRun(pages)
	if err != nil {
		return 0, err
	}
	for i := range pages {
		c.pages[first+i] = page{head: uint16(i)}
	}
	p := &c.pages[first]
	p.run, p.class = uint16(pages), class
	p.slots = uint16(pages * pageSize / classSize(class))
	p.freeSlots = p.slots
	for i := range p.slots {
		p.free[i>>6] |= 1 << (i & 63)
	}
	ref := spanRef(uint64(c.id)<<16 | uint64(first))
	h.list(ref, p)
	return ref, nil
}

// findRun takes a run of free pages from the lowest chunk that has one, so that
// the higher ones empty, or from a new chunk.
func (h *heap) findRun(pages int) (*chunk, int, error) {
	for _, c := range h.chunks {
		if c.evac.Load() {
			continue
		}
		if first, ok := c.run(pages); ok {
			if c == h.spare {
				h.spare = nil
			}
			return c, first, nil
		}
	}
	c, err := h.grow(pages)
	if err != nil {
		return nil, 0, err
	}
	first, _ := c.run(pages)
	return c, first, nil
}

// grow maps a new chunk of at least that many pages.
func (h *heap) grow(pages int) (*chunk, error) {
	need := int64(pages * pageSize)
	size := int64(chunkMin)
	for size < chunkMax && size*2*chunkShare <= h.reserved {
		size *= 2
	}
	size = max(size, need)
	for {
		region, err := h.arena.mem.Map(size)
		if err == nil {
			c := h.arena.addChunk(region)
			at, _ := slices.BinarySearchFunc(h.chunks, c.id, func(c *chunk, id uint32) int { return int(c.id) - int(id) })
			h.chunks = slices.Insert(h.chunks, at, c)
			h.reserved += region.Size()
			return c, nil
		}
		smaller := max(size/2/pageSize*pageSize, need, chunkLeast)
		if sundog.KindOf(err) != sundog.NoSpace || smaller >= size {
			return nil, err
		}
		size = smaller
	}
}

// release returns a slot. No reader may still see it.
func (h *heap) release(at address, class uint8) {
	c := h.arena.chunk(at.chunk())
	first := at.offset() / pageSize
	first -= int(c.pages[first].head)
	p := &c.pages[first]
	size := classSize(class)
	slot := (at.offset() - first*pageSize) / size
	if p.class != class || p.free[slot>>6]>>(slot&63)&1 != 0 {
		panic(sundog.Errorf(sundog.Corrupt, "table arena: slot %#x of class %d released twice or never taken", uint64(at), class))
	}
	p.free[slot>>6] |= 1 << (slot & 63)
	p.freeSlots++
	if p.listed {
		h.free[class]++
	}
	h.live -= int64(size)
	c.live -= int64(size)
	ref := spanRef(uint64(c.id)<<16 | uint64(first))
	switch {
	case p.freeSlots == p.slots:
		h.unlist(ref, p)
		run := int(p.run)
		p.run = 0
		c.giveBack(first, run)
		if c.empty() {
			h.retireChunk(c)
		}
	case !p.listed && !c.evac.Load():
		h.list(ref, p)
	}
}

// retireChunk gives an empty chunk back to the node's memory. One is kept where
// it is small, or a small part of the heap, so that a pool that breathes at a chunk's
// edge does not map and unmap with every breath.
func (h *heap) retireChunk(c *chunk) {
	if h.spare == nil && !c.evac.Load() && h.mayKeep(c) {
		h.spare = c
		return
	}
	h.drop(c)
	if h.spare != nil && !h.mayKeep(h.spare) {
		h.dropSpare()
	}
}

func (h *heap) mayKeep(c *chunk) bool {
	size := c.region.Size()
	return size <= chunkMin || size*chunkShare <= h.reserved
}

// dropSpare gives the empty chunk back because memory is short.
func (h *heap) dropSpare() bool {
	spare := h.spare
	if spare == nil {
		return false
	}
	h.spare = nil
	h.drop(spare)
	return true
}

func (h *heap) drop(c *chunk) {
	h.chunks = slices.DeleteFunc(h.chunks, func(o *chunk) bool { return o == c })
	h.reserved -= c.region.Size()
	h.arena.dropChunk(c)
}

func (h *heap) list(ref spanRef, p *page) {
	next := h.partial[p.class]
	p.prev, p.next, p.listed = 0, next, true
	h.free[p.class] += int64(p.freeSlots)
	if next != 0 {
		h.span(next).prev = ref
	}
	h.partial[p.class] = ref
}

func (h *heap) unlist(ref spanRef, p *page) {
	if !p.listed {
		return
	}
	if p.prev != 0 {
		h.span(p.prev).next = p.next
	} else {
		h.partial[p.class] = p.next
	}
	if p.next != 0 {
		h.span(p.next).prev = p.prev
	}
	p.prev, p.next, p.listed = 0, 0, false
	h.free[p.class] -= int64(p.freeSlots)
}
