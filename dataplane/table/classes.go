package table

import "math/bits"

// Size classes. A slot's class is one byte of its index word, so that a reader
// that has only the word knows how much to read.
//
//	3-64     16 bytes times the class, to 1 KiB
//	65-96    sixteen steps a doubling, to 4 KiB
//	97-120   eight steps a doubling, to 32 KiB
//	121-255  whole pages: class 120+n is 4+n pages, 40 KiB and more
const (
	pageSize    = 8 << 10
	smallest    = 3 // class of the shortest item
	smallTop    = 64
	smallMax    = 1 << 10
	fineTop     = 96
	fineMax     = 4 << 10
	mediumTop   = 120
	mediumMax   = 32 << 10
	maxClass    = 255
	largestSlot = (maxClass - mediumTop + mediumMax/pageSize) * pageSize

	bucketClass = bucketSize / granule
	maxSlots    = 384 // of a span
)

// classOf is the smallest class of at least size bytes, up to largestSlot.
func classOf(size int) uint8 {
	switch {
	case size <= smallMax:
		return uint8(max(smallest, (size+granule-1)/granule))
	case size <= fineMax:
		return uint8(smallTop + stepOf(size, smallMax, 16))
	case size <= mediumMax:
		return uint8(fineTop + stepOf(size, fineMax, 8))
	default:
		return uint8(mediumTop - mediumMax/pageSize + (size+pageSize-1)/pageSize)
	}
}

// stepOf numbers the sizes above base, steps of them to a doubling, from 1.
func stepOf(size, base, steps int) int {
	doublings := bits.Len(uint((size-1)/base)) - 1
	low := base << doublings // low < size <= 2 low
	step := low / steps
	return steps*doublings + (size-low+step-1)/step
}

// sizeAt is the size numbered n by stepOf.
func sizeAt(n, base, steps int) int {
	low := base << ((n - 1) / steps)
	return low + low/steps*((n-1)%steps+1)
}

// classSize is the bytes of a slot of the class.
func classSize(class uint8) int {
	switch c := int(class); {
	case c <= smallTop:
		return c * granule
	case c <= fineTop:
		return sizeAt(c-smallTop, smallMax, 16)
	case c <= mediumTop:
		return sizeAt(c-fineTop, fineMax, 8)
	default:
		return (c - mediumTop + mediumMax/pageSize) * pageSize
	}
}

// spanPages is the pages of a span of the class. Of the few shortest spans of at
// least two pages and four slots it is the first that wastes a 128th or less,
// else the one that wastes least; for classes of whole pages exactly the slot.
func spanPages(class uint8) int {
	size := classSize(class)
	if size > mediumMax {
		return size / pageSize
	}
	shortest := max(2, (4*size+pageSize-1)/pageSize)
	best := shortest
	for n := shortest; n <= shortest+11 && n*pageSize/size <= maxSlots; n++ {
		waste := n * pageSize % size
		if waste*128 <= n*pageSize {
			return n
		}
		if waste*best < best*pageSize%size*n {
			best = n
		}
	}
	return best
}
