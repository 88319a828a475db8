package rpc

import (
	"unicode/utf8"

	"github.com/sundog-kv/sundog"
)

// Fields of an encoded error that are present.
const (
	errHasEpoch  = 1 << 0
	errHasLeader = 1 << 1
	errHasSizes  = 1 << 2
	errFields    = errHasEpoch | errHasLeader | errHasSizes
)

// maxErrorText bounds the message of an error on the wire, in bytes.
const maxErrorText = 1 << 10

// minErrorSize is the smallest encoded error.
const minErrorSize = 4

// AppendError appends e: kind, mask of fields, epoch, leader, used and limit
// where they are set, then the message (cut at 1 KiB). It is self-delimiting.
func AppendError(b []byte, e *sundog.Error) []byte {
	var fields byte
	if e.Epoch != 0 {
		fields |= errHasEpoch
	}
	if e.Leader != 0 {
		fields |= errHasLeader
	}
	if e.Used != 0 || e.Limit != 0 {
		fields |= errHasSizes
	}
	b = append(b, byte(e.Kind), fields)
	if fields&errHasEpoch != 0 {
		b = le.AppendUint64(b, uint64(e.Epoch))
	}
	if fields&errHasLeader != 0 {
		b = le.AppendUint64(b, uint64(e.Leader))
	}
	if fields&errHasSizes != 0 {
		b = le.AppendUint64(b, uint64(e.Used))
		b = le.AppendUint64(b, uint64(e.Limit))
	}
	msg := cutText(e.Msg, maxErrorText)
	b = le.AppendUint16(b, uint16(len(msg)))
	return append(b, msg...)
}

// DecodeError reads what [AppendError] wrote and returns the bytes after it;
// the last result is of kind [sundog.Corrupt] where that cannot be. Kinds of a
// newer release keep their number.
func DecodeError(b []byte) (*sundog.Error, []byte, error) {
	c := cursor{b: b}
	e := c.remoteError()
	if c.err != nil {
		return nil, nil, c.err
	}
	return e, c.b, nil
}

func (c *cursor) remoteError() *sundog.Error {
	e := &sundog.Error{Kind: sundog.Kind(c.u8())}
	fields := c.u8()
	if c.err == nil && (e.Kind == 0 || fields&^errFields != 0) {
		c.fail("unknown kind or field of an error")
	}
	if fields&errHasEpoch != 0 {
		e.Epoch = sundog.Epoch(c.u64())
	}
	if fields&errHasLeader != 0 {
		e.Leader = sundog.NodeID(c.u64())
	}
	if fields&errHasSizes != 0 {
		e.Used, e.Limit = int64(c.u64()), int64(c.u64())
	}
	e.Msg = string(c.take(int(c.u16())))
	return e
}

// cutText shortens s to at most n bytes without splitting a rune.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
