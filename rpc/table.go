package rpc

import "math"

// table holds the calls in flight by request id: the slot's number in the low
// 32 bits, the slot's generation above, so that an answer that comes after its
// call was given up finds nobody.
type table struct {
	slots []slot
	free  []uint32
	used  int
	made  uint64 // calls ever added
}

type slot struct {
	generation uint32
	call       *call
}

func (t *table) add(k *call) uint64 {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.slots)))
		t.slots = append(t.slots, slot{})
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := &t.slots[i]
	s.generation++
	s.call = k
	t.used++
	t.made++
	return uint64(s.generation)<<32 | uint64(i)
}

// waits reports whether the call of that id is still there.
func (t *table) waits(id uint64) bool {
	i := id & math.MaxUint32
	return i < uint64(len(t.slots)) && t.slots[i].call != nil && t.slots[i].generation == uint32(id>>32)
}

// takeAll removes and returns all calls.
func (t *table) takeAll() []*call {
	var all []*call
	for i := range t.slots {
		if k := t.slots[i].call; k != nil {
			all = append(all, k)
		}
	}
	*t = table{}
	return all
}

// take removes and returns the call of that id, nil if it is not there any more.
func (t *table) take(id uint64) *call {
	if !t.waits(id) {
		return nil
	}
	i := uint32(id & math.MaxUint32)
	s := &t.slots[i]
	k := s.call
	s.call = nil
	t.used--
	t.free = append(t.free, i)
	return k
}
