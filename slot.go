package sundog

import "bytes"

// Slots is the number of hash slots, Redis Cluster's.
const Slots = 16384

// Slot is a key's hash slot, 0 to Slots-1.
type Slot uint16

// SlotOf hashes a key as Redis Cluster does (its specification, "Key
// distribution model"): CRC16/XMODEM of the key modulo 16384, or of the part
// between the first '{' and the next '}' where that part is not empty, so that
// keys with one {hashtag} share a partition.
func SlotOf(key []byte) Slot {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		tag := key[open+1:]
		if end := bytes.IndexByte(tag, '}'); end > 0 {
			key = tag[:end]
		}
	}
	return Slot(crc16(key) % Slots)
}

// Partition maps the slot to one of p partitions, p a power of two
// ([ValidPartitions]): partition = slot × p >> 14, so that doubling p splits
// every partition in two neighbours.
func (s Slot) Partition(p int) Partition { return Partition(int(s) * p >> 14) }

// PartitionOf is SlotOf(key).Partition(p).
func PartitionOf(key []byte, p int) Partition { return SlotOf(key).Partition(p) }

// crc16 is CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected.
func crc16(b []byte) uint16 {
	var crc uint16
	for _, c := range b {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return crc
}

// crcTable is read-only: the CRC of every one-byte message.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
