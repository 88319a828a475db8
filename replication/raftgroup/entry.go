package raftgroup

import (
	"encoding/binary"

	"github.com/sundog-kv/sundog"
)

// A command entry's Data: u8 version 1, u64 clock, uvarint number of commands,
// and for each uvarint length, bytes.
const entryVersion = 1

func encodeEntry(clock sundog.Clock, commands [][]byte) []byte {
	size := 1 + 8 + binary.MaxVarintLen32
	for _, c := range commands {
		size += binary.MaxVarintLen32 + len(c)
	}
	b := append(make([]byte, 0, size), entryVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(clock))
	b = binary.AppendUvarint(b, uint64(len(commands)))
	for _, c := range commands {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b
}

// decodeEntry reads what encodeEntry wrote; commands alias b. Kind Corrupt.
func decodeEntry(b []byte) (Entry, error) {
	d := decoder{b: b}
	if d.u8() != entryVersion {
		d.fail()
	}
	e := Entry{Clock: sundog.Clock(d.u64())}
	n := d.uvarint()
	if n > uint64(len(d.b)) { // each command takes a byte or more
		d.fail()
	} else if n > 0 {
		e.Commands = make([][]byte, n)
	}
	for i := range e.Commands {
		e.Commands[i] = d.bytes(d.uvarint())
	}
	if d.bad || len(d.b) > 0 {
		return Entry{}, sundog.Errorf(sundog.Corrupt, "log entry does not decode")
	}
	return e, nil
}
