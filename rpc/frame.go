package rpc

import (
	"math"
	"time"

	"github.com/sundog-kv/sundog"
)

// The frame header, little-endian: u32 length of all that follows it, u8
// version, u8 flags, u16 method, u64 request id, u64 epoch, u32 budget in
// milliseconds.
const (
	lengthSize = 4
	headerSize = 28
	// afterLength is what a frame without a body counts in its length word.
	afterLength = headerSize - lengthSize
	// frameVersion is the version of the header and of all that follows it.
	frameVersion = 1
	// idAt and budgetAt are where the id and the budget lie, which are filled
	// in last.
	idAt     = 8
	budgetAt = 24
)

// Flags of a frame.
const (
	flagResponse = 1 << 0
	flagError    = 1 << 1 // the body is an encoded error
	flagsKnown   = flagResponse | flagError
)

// header is a frame's first 28 bytes.
type header struct {
	length uint32
	flags  uint8
	method Method
	id     uint64
	epoch  sundog.Epoch
	budget uint32 // ms left for the call, 0 none; requests only
}

// append appends the header of a frame with that many bytes of body.
func (h *header) append(b []byte, body int) []byte {
	b = le.AppendUint32(b, uint32(afterLength+body))
	b = append(b, frameVersion, h.flags)
	b = le.AppendUint16(b, uint16(h.method))
	b = le.AppendUint64(b, h.id)
	b = le.AppendUint64(b, uint64(h.epoch))
	return le.AppendUint32(b, h.budget)
}

// body is the number of bytes that follow the header.
func (h *header) body() int { return int(h.length) - afterLength }

// parseHeader reads a header, b being headerSize bytes, and judges its length
// before anybody allocates for it. The error is of kind Corrupt, or TooLarge
// with both sizes.
func parseHeader(b []byte, maxFrame int) (header, error) {
	h := header{
		length: le.Uint32(b),
		flags:  b[5],
		method: Method(le.Uint16(b[6:])),
		id:     le.Uint64(b[8:]),
		epoch:  sundog.Epoch(le.Uint64(b[16:])),
		budget: le.Uint32(b[budgetAt:]),
	}
	switch {
	case b[4] != frameVersion:
		return h, sundog.Errorf(sundog.Corrupt, "frame version %d, want %d", b[4], frameVersion)
	case h.length < afterLength:
		return h, sundog.Errorf(sundog.Corrupt, "frame of %d bytes is shorter than its header", h.length)
	case uint64(h.length) > uint64(maxFrame):
		return h, tooLarge("frame", int64(h.length), int64(maxFrame))
	case h.flags&^flagsKnown != 0:
		return h, sundog.Errorf(sundog.Corrupt, "unknown frame flags %#x", h.flags)
	}
	return h, nil
}

func tooLarge(what string, size, limit int64) *sundog.Error {
	e := sundog.Errorf(sundog.TooLarge, "%s of %d bytes, the limit is %d", what, size, limit)
	e.Used, e.Limit = size, limit
	return e
}

// budgetMillis is the time left as it is sent: rounded up, so that a call that
// still has time never looks like one without a deadline or without time.
func budgetMillis(left time.Duration) uint32 {
	ms := (left + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 1), math.MaxUint32))
}
