package raftgroup

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// A record is one raft.Log without its index, as the store keeps it under the
// index and as AppendEntries carries it:
//
//	u8      version (high four bits, 1) and raft.LogType (low four bits)
//	uvarint term
//	varint  AppendedAt in Unix nanoseconds, 0 for none
//	uvarint length of Extensions, and those
//	        Data, to the end
//
// The store adds a CRC-32C over index and record (sealRecord); on the wire the
// frame has one.
const (
	recordVersion = 1
	recordSeal    = 4 // bytes of the store's checksum
)

// crcTable is read-only.
var crcTable = crc32.MakeTable(crc32.Castagnoli)

// appendRecordHead appends all of the record but Data.
func appendRecordHead(b []byte, l *raft.Log) []byte {
	b = append(b, recordVersion<<4|byte(l.Type)&0xf)
	b = binary.AppendUvarint(b, l.Term)
	at := int64(0)
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	b = binary.AppendVarint(b, at)
	b = binary.AppendUvarint(b, uint64(len(l.Extensions)))
	return append(b, l.Extensions...)
}

// decodeRecord fills l from a record; Data and Extensions alias b. Kind Corrupt.
func decodeRecord(b []byte, index uint64, l *raft.Log) error {
	d := decoder{b: b}
	first := d.u8()
	*l = raft.Log{Index: index, Type: raft.LogType(first & 0xf)}
	l.Term = d.uvarint()
	if at := d.varint(); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	if ext := d.bytes(d.uvarint()); len(ext) > 0 {
		l.Extensions = ext
	}
	if first>>4 != recordVersion || l.Type > raft.LogConfiguration {
		d.fail()
	}
	if d.bad {
		return sundog.Errorf(sundog.Corrupt, "log record %d does not decode", index)
	}
	l.Data = d.b
	return nil
}

// sealRecord is the record as the store keeps it.
func sealRecord(l *raft.Log) []byte {
	b := make([]byte, 0, 32+len(l.Extensions)+len(l.Data))
	b = append(appendRecordHead(b, l), l.Data...)
	return binary.LittleEndian.AppendUint32(b, recordSum(l.Index, b))
}

// openRecord checks and decodes what sealRecord wrote.
func openRecord(b []byte, index uint64, l *raft.Log) error {
	n := len(b) - recordSeal
	if n < 0 || binary.LittleEndian.Uint32(b[n:]) != recordSum(index, b[:n]) {
		return sundog.Errorf(sundog.Corrupt, "log record %d fails its checksum", index)
	}
	return decodeRecord(b[:n:n], index, l)
}

func recordSum(index uint64, record []byte) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], index)
	return crc32.Update(crc32.Checksum(key[:], crcTable), crcTable, record)
}

// decoder reads a message front to back; after the first read beyond its end it
// is bad and yields zeroes.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.bad, d.b = true, nil
}

// bytes returns the next n bytes, aliasing the message.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}
