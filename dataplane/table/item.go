package table

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// The state word of an item, on its own first 8 bytes:
//
//	bits 0-7    state
//	bit  8      a node follows the clock
//	bit  9      a deadline follows
//	bits 16-31  length of the key
//	bits 32-63  length of the value
const (
	stateNone     = 0x00
	stateLive     = 0xa5
	stateDead     = 0x5a
	stateMask     = 0xff
	flagNode      = 1 << 8
	flagDeadline  = 1 << 9
	keyLenShift   = 16
	valueLenShift = 32
)

// Offsets in an item; node and deadline follow where their flags say so, then
// key and value.
const (
	itemState    = 0
	itemSum      = 8
	itemValueSum = 16
	itemClock    = 24
	itemFixed    = 32
)

// itemSize is the exact length of an item in bytes.
func itemSize(key, value int, v sundog.Version, deadline int64) int {
	size := itemFixed + key + value
	if v.Node != 0 {
		size += 8
	}
	if deadline != 0 {
		size += 8
	}
	return size
}

// raw is an item as it was found: nothing of it is proved yet but that its
// parts lie within the bytes given. Every header word was loaded once.
type raw struct {
	state, sum, valueSum uint64
	version              sundog.Version
	deadline             int64
	key, value           []byte // alias the bytes given
}

// parseItem takes an item apart. It accepts any bytes and never reads past
// them; false means that they cannot be an item.
func parseItem(b []byte) (r raw, ok bool) {
	if len(b) < itemFixed {
		return r, false
	}
	r.state = loadWord(b, itemState)
	r.sum = loadWord(b, itemSum)
	r.valueSum = loadWord(b, itemValueSum)
	r.version.Clock = sundog.Clock(loadWord(b, itemClock))
	keyAt := uint64(itemFixed)
	if r.state&flagNode != 0 {
		keyAt += 8
	}
	if r.state&flagDeadline != 0 {
		keyAt += 8
	}
	valueAt := keyAt + r.state>>keyLenShift&0xffff
	end := valueAt + r.state>>valueLenShift // at most 2^32 + 2^16 + 48: no overflow
	if end > uint64(len(b)) {
		return r, false
	}
	at := itemFixed
	if r.state&flagNode != 0 {
		r.version.Node = sundog.NodeID(loadWord(b, at))
		at += 8
	}
	if r.state&flagDeadline != 0 {
		r.deadline = int64(loadWord(b, at))
	}
	r.key, r.value = b[keyAt:valueAt:valueAt], b[valueAt:end:end]
	return r, true
}

func (r *raw) live() bool { return r.state&stateMask == stateLive }

// headerSum is over what identifies the item: the table's incarnation, the
// place it lies at, its header as a live one, and the sums of value and key.
// Bytes that were moved, mixed or left over from another item or table do not
// have it.
func headerSum(incarnation uint64, at address, state, valueSum uint64, v sundog.Version, deadline int64, keySum uint64) uint64 {
	var b [64]byte
	le := binary.LittleEndian
	le.PutUint64(b[0:], incarnation)
	le.PutUint64(b[8:], uint64(at))
	le.PutUint64(b[16:], state&^stateMask|stateLive)
	le.PutUint64(b[24:], valueSum)
	le.PutUint64(b[32:], uint64(v.Clock))
	le.PutUint64(b[40:], uint64(v.Node))
	le.PutUint64(b[48:], uint64(deadline))
	le.PutUint64(b[56:], keySum)
	return xxhash.Sum64(b[:])
}

// headerHolds reports whether the header sum is right for a key of that hash.
func (r *raw) headerHolds(incarnation uint64, at address, keySum uint64) bool {
	return mutantChecksumOff ||
		r.sum == headerSum(incarnation, at, r.state, r.valueSum, r.version, r.deadline, keySum)
}

// valueHolds reports whether copied is the item's value. The sum is taken over
// the copy, never over shared bytes that are read a second time afterwards.
func (r *raw) valueHolds(copied []byte) bool {
	return mutantChecksumOff || r.valueSum == xxhash.Sum64(copied)
}

// content is what goes into an item.
type content struct {
	key, value       []byte
	keySum, valueSum uint64
	version          sundog.Version
	deadline         int64
}

func (c *content) size() int {
	return itemSize(len(c.key), len(c.value), c.version, c.deadline)
}

// fitsInline reports whether the pair may lie in a bucket.
func (c *content) fitsInline() bool { return len(c.key)+len(c.value) <= inlineLimit }

// writeItem writes the item whole into b, memory that no index word names. The
// state word comes last and is stored atomically, so whoever loads it live
// loads the rest as written here. It is cleared first: a reader with an old
// address that meets a half-written item sees that it is none (and where the
// hardware reorders that, the sums say so).
func writeItem(b []byte, incarnation uint64, at address, c *content) {
	storeWord(b, itemState, stateNone)
	state := uint64(stateLive) | uint64(len(c.key))<<keyLenShift | uint64(len(c.value))<<valueLenShift
	le, off := binary.LittleEndian, itemFixed
	if c.version.Node != 0 {
		state |= flagNode
		le.PutUint64(b[off:], uint64(c.version.Node))
		off += 8
	}
	if c.deadline != 0 {
		state |= flagDeadline
		le.PutUint64(b[off:], uint64(c.deadline))
		off += 8
	}
	le.PutUint64(b[itemSum:], headerSum(incarnation, at, state, c.valueSum, c.version, c.deadline, c.keySum))
	le.PutUint64(b[itemValueSum:], c.valueSum)
	le.PutUint64(b[itemClock:], uint64(c.version.Clock))
	off += copy(b[off:], c.key)
	copy(b[off:], c.value)
	storeWord(b, itemState, state)
}

// markDead ends the item for every reader, whichever way it came. Lengths and
// flags stay, so that a Cut can still read an item that it holds.
func markDead(b []byte) {
	storeWord(b, itemState, loadWord(b, itemState)&^stateMask|stateDead)
}
