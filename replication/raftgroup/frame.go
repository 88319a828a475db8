package raftgroup

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/sundog-kv/sundog"
)

// Frames of the transport, little-endian:
//
//	u32 length of what follows it
//	u32 CRC-32C of what follows it
//	u8  kind
//	u8  flags: 1 = the message goes on in the next frame
//	u16 0
//	u32 group
//	u32 replica incarnation of the receiver
//	u32 replica incarnation of the sender
//	u64 id of the request (its answer has the same)
//	    payload
//
// A message longer than a frame is cut into frames that follow each other on the
// connection. The node ids of both ends are the connection's, never the frame's.
const (
	frameHeader  = 32
	frameFixed   = frameHeader - 4 // the least length
	maxFrame     = 1 << 20         // header included
	maxPayload   = maxFrame - frameHeader
	maxMessage   = 64 << 20
	flagMore     = 1
	smallPart    = 4 << 10 // parts below this are copied together
	maxBatchSize = 1 << 20
)

// Kinds of messages. Numbers are sent and append-only; answers have the high
// bit of their request.
const (
	kindAppend     = 1
	kindVote       = 2
	kindPreVote    = 3
	kindTimeoutNow = 4
	kindInstall    = 5
	kindChunk      = 6 // of a snapshot
	kindEnd        = 7 // of a snapshot
	kindAlive      = 8 // the snapshot's receiver is at work
	kindAnswer     = 0x80
	kindError      = 0xff
)

// message is one that waits to be written. Its parts are neither copied nor
// changed.
type message struct {
	kind     byte
	group    GroupID
	to, from uint32
	id       uint64
	parts    [][]byte
	size     int           // of all parts
	hold     time.Duration // it may wait for the next tick of this length
}

func newMessage(kind byte, group GroupID, to, from uint32, id uint64, parts ...[]byte) *message {
	m := &message{kind: kind, group: group, to: to, from: from, id: id, parts: parts}
	for _, p := range parts {
		m.size += len(p)
	}
	return m
}

// frameWriter turns messages into vectored writes.
type frameWriter struct {
	conn    net.Conn
	timeout time.Duration
	scratch []byte
	bufs    net.Buffers
}

// write sends the messages in one or more vectored writes of about maxBatchSize.
func (w *frameWriter) write(msgs []*message) error {
	for len(msgs) > 0 {
		n, size := 0, 0
		for n < len(msgs) && (n == 0 || size+msgs[n].size <= maxBatchSize) {
			size += msgs[n].size + frameHeader
			n++
		}
		if err := w.writeBatch(msgs[:n]); err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

func (w *frameWriter) writeBatch(msgs []*message) error {
	need := 0
	for _, m := range msgs {
		need += frameHeader * (1 + m.size/maxPayload)
		for _, p := range m.parts {
			if len(p) < smallPart {
				need += len(p)
			}
		}
	}
	// The slices in bufs point into scratch, so it must not grow meanwhile.
	if cap(w.scratch) < need {
		w.scratch = make([]byte, 0, 2*need)
	}
	w.scratch, w.bufs = w.scratch[:0], w.bufs[:0]
	for _, m := range msgs {
		w.layMessage(m)
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}
	bufs := w.bufs // WriteTo eats its receiver
	_, err := bufs.WriteTo(w.conn)
	clear(w.bufs)
	return err
}

// layMessage lays out the message's frames behind those before.
func (w *frameWriter) layMessage(m *message) {
	left, part, offset := m.size, 0, 0
	for {
		n := min(left, maxPayload)
		left -= n
		start := len(w.scratch)
		w.scratch = w.scratch[:start+frameHeader]
		head := w.scratch[start:]
		putHeader(head, m, n, left > 0)
		sum := crc32.Checksum(head[8:], crcTable)
		run := start // scratch from here on is not in bufs yet
		for n > 0 {
			p := m.parts[part][offset:]
			small := len(m.parts[part]) < smallPart
			if len(p) > n {
				p = p[:n]
			}
			sum = crc32.Update(sum, crcTable, p)
			n -= len(p)
			if offset += len(p); offset == len(m.parts[part]) {
				part, offset = part+1, 0
			}
			if small {
				w.scratch = append(w.scratch, p...)
				continue
			}
			w.addRun(run)
			w.bufs = append(w.bufs, p)
			run = len(w.scratch)
		}
		binary.LittleEndian.PutUint32(head[4:], sum)
		w.addRun(run)
		if left == 0 {
			return
		}
	}
}

// addRun adds scratch from run on, joined to the buffer before it where they
// touch, so that small messages make one buffer.
func (w *frameWriter) addRun(run int) {
	b := w.scratch[run:len(w.scratch):len(w.scratch)]
	if len(b) == 0 {
		return
	}
	if n := len(w.bufs); n > 0 {
		last := w.bufs[n-1]
		if run >= len(last) && len(last) > 0 && &w.scratch[run-len(last)] == &last[0] {
			w.bufs[n-1] = w.scratch[run-len(last) : len(w.scratch) : len(w.scratch)]
			return
		}
	}
	w.bufs = append(w.bufs, b)
}

func putHeader(b []byte, m *message, payload int, more bool) {
	binary.LittleEndian.PutUint32(b, uint32(frameFixed+payload))
	b[8], b[9], b[10], b[11] = m.kind, 0, 0, 0
	if more {
		b[9] = flagMore
	}
	binary.LittleEndian.PutUint32(b[12:], uint32(m.group))
	binary.LittleEndian.PutUint32(b[16:], m.to)
	binary.LittleEndian.PutUint32(b[20:], m.from)
	binary.LittleEndian.PutUint64(b[24:], m.id)
}

// received is a message as it arrived; payload is its own memory.
type received struct {
	kind     byte
	group    GroupID
	to, from uint32
	id       uint64
	payload  []byte
}

// readMessage reads frames up to the end of one message. Lengths are checked
// before anything is allocated. Kind Corrupt when the bytes are not ours, else
// the connection's error.
func readMessage(r io.Reader) (received, error) {
	var msg received
	for part := 0; ; part++ {
		var head [frameHeader]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return msg, err
		}
		length := binary.LittleEndian.Uint32(head[:])
		if length < frameFixed || length > maxFrame-4 {
			return msg, sundog.Errorf(sundog.Corrupt, "raft frame of %d bytes", length)
		}
		payload := int(length) - frameFixed
		if len(msg.payload)+payload > maxMessage {
			return msg, sundog.Errorf(sundog.Corrupt, "raft message of more than %d bytes", maxMessage)
		}
		at := len(msg.payload)
		msg.payload = grow(msg.payload, payload)
		if _, err := io.ReadFull(r, msg.payload[at:]); err != nil {
			return msg, noEOF(err)
		}
		sum := crc32.Update(crc32.Checksum(head[8:], crcTable), crcTable, msg.payload[at:])
		if sum != binary.LittleEndian.Uint32(head[4:]) {
			return msg, sundog.Errorf(sundog.Corrupt, "raft frame fails its checksum")
		}
		if err := msg.addHeader(head[:], part); err != nil {
			return msg, err
		}
		if head[9]&flagMore == 0 {
			return msg, nil
		}
		if payload == 0 {
			return msg, sundog.Errorf(sundog.Corrupt, "empty raft frame inside a message")
		}
	}
}

// addHeader takes over the first frame's header and demands the same of the others.
func (m *received) addHeader(head []byte, part int) error {
	h := received{
		kind: head[8], group: GroupID(binary.LittleEndian.Uint32(head[12:])),
		to: binary.LittleEndian.Uint32(head[16:]), from: binary.LittleEndian.Uint32(head[20:]),
		id: binary.LittleEndian.Uint64(head[24:]),
	}
	if head[9]&^flagMore != 0 || head[10] != 0 || head[11] != 0 {
		return sundog.Errorf(sundog.Corrupt, "raft frame with unknown flags")
	}
	if part > 0 && (h.kind != m.kind || h.group != m.group || h.to != m.to || h.from != m.from || h.id != m.id) {
		return sundog.Errorf(sundog.Corrupt, "raft frame inside another message")
	}
	h.payload = m.payload
	*m = h
	return nil
}

// grow lengthens b by n bytes, doubling so that long messages are copied little.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		c := len(b) + n
		if len(b) > 0 {
			c = max(c, 2*len(b))
		}
		b = append(make([]byte, 0, c), b...)
	}
	return b[:len(b)+n]
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// deadlineReader renews the connection's read deadline before each read.
type deadlineReader struct {
	conn net.Conn
	idle time.Duration
}

// Read is of io.Reader.
func (r deadlineReader) Read(b []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.idle)); err != nil {
		return 0, err
	}
	return r.conn.Read(b)
}
