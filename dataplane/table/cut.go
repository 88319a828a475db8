package table

import (
	"slices"

	"github.com/sundog-kv/sundog"
)

// What a cut that is being read may hold before the writer waits for it.
const (
	cutQueue = 64       // groups handed over and not read
	cutHeld  = 16 << 20 // bytes of slots that the table has replaced or deleted
)

// Entry is an item with its key, as a [Cut] returns it.
type Entry struct {
	Key      []byte
	Value    []byte
	Version  sundog.Version
	Deadline int64 // Unix milliseconds; 0 is none
}

// Cut is the table as it was at one instant, read while the writer goes on.
//
// The cut walks the groups that were there. Before the writer changes a group
// that the cut has not come to, it hands the group's buckets (words and inline
// pairs, 3 KiB) over through a bounded queue; slots that those words name are
// given up only after they were read. The memory of a cut is thus the queue and
// the slots replaced meanwhile. From the first Next on both are bounded: at the
// bound the writer waits for Next or Close, so Next must not depend on the writer
// getting on. Until the first Next the writer never waits, since who will read
// may itself be waiting for the writer; the cut then holds at most what the
// table was, each group and each slot once.
type Cut struct {
	t      *Table
	groups uint32 // groups at the instant of the cut

	// Guarded by the table's mutex.
	taken   []uint64 // groups handed over or read, one bit each
	next    uint32   // the cut's own walk
	queue   []*record
	spare   []*record // to use again
	handed  uint64    // records taken so far; the last one's number
	done    uint64    // records read whole
	held    []heldSlot
	heldSum int64
	young   map[address]struct{} // slots taken since the cut and not given up: none of its business
	begun   bool                 // Next was called
	closed  bool

	// The reader's own.
	reading *record
	bucket  int // of reading
	word    int // of that bucket
	buf     []byte
	err     error
}

// record is a group as it was at the cut.
type record struct {
	snapshot
}

// heldSlot is a slot to give up once record number after has been read: it may
// be named by any record up to that.
type heldSlot struct {
	at    address
	class uint8
	after uint64
}

// Cut returns a consistent cut of the table at this instant. The writer calls
// it; another goroutine reads it, and somebody closes it. It costs an
// allocation of one bit a group.
func (t *Table) Cut() *Cut {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Cut{t: t, young: map[address]struct{}{}}
	if t.closed {
		c.closed = true
		return c
	}
	c.groups = t.cur.groups
	c.taken = make([]uint64, (c.groups+63)/64)
	t.cuts = append(t.cuts, c)
	return c
}

// beforeChange is called by the writer before it changes a group: every open cut
// that has not read the group gets it handed over, after a wait where a cut is
// full. Only the writer changes the table, so nothing changes in the wait.
func (t *Table) beforeChange(group uint32) {
	for t.anyCutFull() {
		t.changed.Wait()
	}
	for _, c := range t.cuts {
		if group < c.groups && c.taken[group>>6]>>(group&63)&1 == 0 {
			c.take(group)
		}
	}
}

func (t *Table) anyCutFull() bool {
	for _, c := range t.cuts {
		if c.begun && (len(c.queue) >= cutQueue || c.heldSum >= cutHeld) {
			return true
		}
	}
	return false
}

// cutsHold reports whether cuts that are being read hold slots, which will be
// given up.
func (t *Table) cutsHold() bool {
	for _, c := range t.cuts {
		if c.begun && c.heldSum > 0 {
			return true
		}
	}
	return false
}

// take puts a copy of the group in the queue. The caller holds the table's
// mutex.
func (c *Cut) take(group uint32) {
	r := &record{}
	if n := len(c.spare); n > 0 {
		r, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	r.snapshot.take(c.t, group)
	c.taken[group>>6] |= 1 << (group & 63)
	c.queue = append(c.queue, r)
	c.handed++
}

// hold takes over a slot that the table gives up, if a record that is not read
// yet may name it. A group that was not handed over names no slot that the table
// gives up: handing over comes first.
func (c *Cut) hold(at address, class uint8) bool {
	if _, ok := c.young[at]; ok {
		delete(c.young, at)
		return false
	}
	if c.handed == c.done {
		return false
	}
	c.held = append(c.held, heldSlot{at, class, c.handed})
	c.heldSum += int64(classSize(class))
	return true
}

// Next returns the cut's next entry; its bytes are valid until the next call.
// It returns false at the end, after Close, and when damage was found (Err). One
// goroutine at a time may call it.
func (c *Cut) Next() (Entry, bool) {
	for c.err == nil {
		if c.reading == nil && !c.advance() {
			return Entry{}, false
		}
		for c.bucket < len(c.reading.at) {
			k := c.reading.snapshot.bucket(c.bucket)
			for c.word < k.words() {
				w := k.word(c.word)
				c.word++
				if w != 0 {
					return c.read(k, w)
				}
			}
			c.bucket, c.word = c.bucket+1, 0
		}
		c.finish()
	}
	return Entry{}, false
}

// read copies an entry out and checks both its sums.
func (c *Cut) read(k bucket, w word) (Entry, bool) {
	en, buf, ok := c.t.entryOf(k, w, c.buf[:0])
	if c.buf = buf; ok {
		return en, true
	}
	c.err = sundog.Errorf(sundog.Corrupt, "table of partition %d: an item is damaged", c.t.partition)
	c.t.log.Error("table memory is damaged", "partition", c.t.partition, "incarnation", c.t.incarnation)
	return Entry{}, false
}

// Err returns why Next ended early: kind Corrupt when the table's memory is
// damaged, Closed after Close, else nil.
func (c *Cut) Err() error { return c.err }

// advance takes the next record: one that was handed over, so that the queue
// stays short, else the next group of the walk.
func (c *Cut) advance() bool {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed {
		c.err = sundog.Errorf(sundog.Closed, "cut is closed")
		return false
	}
	c.begun = true
	for len(c.queue) == 0 && c.next < c.groups {
		if c.taken[c.next>>6]>>(c.next&63)&1 == 0 {
			c.take(c.next)
		}
		c.next++
	}
	if len(c.queue) == 0 {
		return false
	}
	c.reading, c.queue = c.queue[0], c.queue[1:]
	c.bucket, c.word = 0, 0
	t.changed.Broadcast()
	return true
}

// finish gives up what was held for the record that has been read.
func (c *Cut) finish() {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	c.spare = append(c.spare, c.reading)
	c.reading = nil
	if c.closed {
		return
	}
	c.done++
	n := 0
	for n < len(c.held) && c.held[n].after <= c.done {
		n++
	}
	c.giveUp(n, slices.Index(t.cuts, c)+1)
	t.changed.Broadcast()
}

// giveUp passes the first n held slots on: to a cut that was opened later, else
// to the arena. Only to later ones, so that two cuts do not pass a slot to and
// fro.
func (c *Cut) giveUp(n, later int) {
	free := c.held[:n]
	c.held = c.held[n:]
	for _, s := range free {
		c.heldSum -= int64(classSize(s.class))
		c.t.retireSlot(s.at, s.class, later)
	}
}

// Close ends the cut and gives up what it held. Any goroutine may call it, but
// not while Next runs. It must be called; twice is harmless.
func (c *Cut) Close() {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	i := slices.Index(t.cuts, c)
	t.cuts = slices.Delete(t.cuts, i, i+1)
	c.giveUp(len(c.held), i)
	c.queue, c.reading, c.spare, c.young = nil, nil, nil, nil
	if t.closed && len(t.cuts) == 0 {
		t.destroy()
	}
	t.changed.Broadcast()
}
