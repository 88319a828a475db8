package rpc

import (
	"math"
	"time"

	"github.com/sundog-kv/sundog"
)

// OpCode says what an [Op] does. Numbers are sent, stored in logs, append-only.
type OpCode uint8

// The op codes.
const (
	OpPut    OpCode = 1 // store Value under Key
	OpDelete OpCode = 2 // remove Key
	OpIncr   OpCode = 3 // add Delta to the counter under Key
)

// Cond is what must hold for an [Op] to be executed. Numbers as for [OpCode].
type Cond uint8

// The conditions.
const (
	CondNone    Cond = 0 // always
	CondAbsent  Cond = 1 // the key is absent, else Exists
	CondVersion Cond = 2 // the key's version is IfVersion, else Conflict
)

// Op is one mutation. It travels in [MethodMutate] and lies in logs in the same
// layout, so a replica of an older release can always say whether it knows it.
type Op struct {
	Code      OpCode
	Pool      sundog.PoolID
	Key       []byte
	Value     []byte // OpPut
	Cond      Cond
	IfVersion sundog.Version // CondVersion
	TTL       time.Duration  // time to live, whole milliseconds on the wire (rounded up); 0 none
	Delta     int64          // OpIncr
}

// opHasTTL is the only bit of an op's field mask in this format.
const opHasTTL = 1

// opHead is the size of an op before its optional fields:
// format, code, cond, fields, key length, value length, pool.
const opHead = 4 + 4 + 4 + 8

// maxTTL is the longest time to live that a time.Duration holds, in ms.
const maxTTL = uint64(math.MaxInt64 / int64(time.Millisecond))

// AppendOp appends op, self-delimiting. It writes what it is given: whether the
// op makes sense is for who executes it.
func AppendOp(b []byte, op *Op) []byte {
	return append(appendOpHead(b, op), op.Value...)
}

// appendOpHead appends all of op but its value.
func appendOpHead(b []byte, op *Op) []byte {
	ttl := ttlMillis(op.TTL)
	var fields byte
	if ttl != 0 {
		fields = opHasTTL
	}
	b = append(b, format, byte(op.Code), byte(op.Cond), fields)
	b = le.AppendUint32(b, size32(op.Key))
	b = le.AppendUint32(b, size32(op.Value))
	b = le.AppendUint64(b, uint64(op.Pool))
	if op.Cond == CondVersion {
		b = op.IfVersion.Append(b)
	}
	if op.Code == OpIncr {
		b = le.AppendUint64(b, uint64(op.Delta))
	}
	if ttl != 0 {
		b = le.AppendUint64(b, ttl)
	}
	return append(b, op.Key...)
}

// DecodeOp reads one op and returns the bytes after it. Key and Value alias b.
// The error is of kind [sundog.Corrupt]: cut short, or a format, code,
// condition or field of a release that this one does not know.
func DecodeOp(b []byte) (op Op, rest []byte, err error) {
	c := cursor{b: b}
	op = c.op()
	if c.err != nil {
		return Op{}, nil, c.err
	}
	return op, c.b, nil
}

func (c *cursor) op() Op {
	c.begin()
	op := Op{Code: OpCode(c.u8()), Cond: Cond(c.u8())}
	fields := c.u8()
	key, value := c.u32(), c.u32()
	op.Pool = sundog.PoolID(c.u64())
	if c.err != nil {
		return op
	}
	switch {
	case op.Code < OpPut || op.Code > OpIncr:
		c.fail("unknown op code")
	case op.Cond > CondVersion:
		c.fail("unknown condition")
	case fields&^opHasTTL != 0:
		c.fail("unknown field of an op")
	case op.Code != OpPut && value != 0:
		c.fail("a value where there is none")
	}
	if op.Cond == CondVersion {
		op.IfVersion = c.version()
	}
	if op.Code == OpIncr {
		op.Delta = int64(c.u64())
	}
	if fields&opHasTTL != 0 {
		ttl := c.u64()
		if ttl == 0 || ttl > maxTTL {
			c.fail("time to live out of range")
		}
		op.TTL = time.Duration(ttl) * time.Millisecond
	}
	if uint64(key)+uint64(value) > uint64(len(c.b)) {
		c.fail("it ends too early")
		return op
	}
	op.Key = c.take(int(key))
	op.Value = c.take(int(value))
	return op
}

// ttlMillis rounds up, so that no time to live becomes none.
func ttlMillis(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	ms := uint64(d / time.Millisecond)
	if d%time.Millisecond != 0 && ms < maxTTL {
		ms++
	}
	return ms
}
