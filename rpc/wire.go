package rpc

import (
	"encoding/binary"
	"math"

	"github.com/sundog-kv/sundog"
)

// Body is a message's payload in parts that are written in order and never
// joined, so that a large value travels from where it lies. See the package
// comment for who owns the bytes.
type Body [][]byte

// Len is the number of bytes of all parts.
func (b Body) Len() int {
	n := 0
	for _, p := range b {
		n += len(p)
	}
	return n
}

// Bytes joins the parts: the part itself when there is only one, else a copy.
func (b Body) Bytes() []byte {
	if len(b) == 1 {
		return b[0]
	}
	out := make([]byte, 0, b.Len())
	for _, p := range b {
		out = append(out, p...)
	}
	return out
}

// format is the first byte of every hot body and of every op: which layout
// follows. A layout only ever grows by a new number.
const format = 1

// copyMax is the largest piece that is copied next to its header instead of
// travelling as a part of its own: below it an iovec costs more than the copy.
const copyMax = 4 << 10

var le = binary.LittleEndian

// builder collects a Body: small pieces joined, large ones by reference.
type builder struct {
	body Body
	tail []byte // joined pieces not in body yet
}

func newBuilder(sizeHint int) *builder { return &builder{tail: make([]byte, 0, sizeHint)} }

// bytes adds p, by reference when it is large.
func (w *builder) bytes(p []byte) {
	if len(p) <= copyMax {
		w.tail = append(w.tail, p...)
		return
	}
	w.body = append(w.body, w.tail, p)
	w.tail = w.tail[len(w.tail):] // the rest of the capacity: parts never overlap
}

func (w *builder) done() Body {
	if len(w.tail) > 0 || len(w.body) == 0 {
		w.body = append(w.body, w.tail)
	}
	return w.body
}

// cursor reads a hot body. The first failure sticks; every read after it
// returns zero, so a decoder checks err once at its end and sizes before make.
type cursor struct {
	b   []byte
	err *sundog.Error
}

func (c *cursor) fail(what string) {
	if c.err == nil {
		c.err = sundog.Errorf(sundog.Corrupt, "malformed message: %s", what)
		c.b = nil
	}
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.fail("it ends too early")
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return le.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return le.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return le.Uint64(p)
	}
	return 0
}

func (c *cursor) version() sundog.Version {
	if p := c.take(sundog.VersionSize); p != nil {
		return sundog.DecodeVersion(p)
	}
	return sundog.Version{}
}

// sized takes a u32 length and that many bytes.
func (c *cursor) sized() []byte {
	n := c.u32()
	if uint64(n) > uint64(len(c.b)) {
		c.fail("it ends too early")
		return nil
	}
	return c.take(int(n))
}

// count takes a u32 number of elements of at least size bytes each and refuses
// what the rest of the message cannot hold, so that it may size a make.
func (c *cursor) count(size int) int {
	n := c.u32()
	if uint64(n)*uint64(size) > uint64(len(c.b)) {
		c.fail("it names more elements than it holds")
		return 0
	}
	return int(n)
}

// begin takes the format byte.
func (c *cursor) begin() {
	if f := c.u8(); c.err == nil && f != format {
		c.fail("unknown format number")
	}
}

// end checks that nothing is left and returns the first failure, nil if none.
func (c *cursor) end() error {
	if c.err == nil && len(c.b) != 0 {
		c.fail("bytes after its end")
	}
	if c.err != nil {
		return c.err
	}
	return nil
}

// appendSized appends a u32 length and the bytes. Lengths above it cannot occur:
// a frame is far smaller.
func appendSized(b, p []byte) []byte {
	return append(le.AppendUint32(b, size32(p)), p...)
}

// size32 is len(p) as it goes on the wire.
func size32(p []byte) uint32 { return uint32(min(len(p), math.MaxUint32)) }
