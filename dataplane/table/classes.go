package table

import "math/bits"

// Size classes. A slot's class is one byte of its index word, so that a reader
// that has only the word knows how much to read.
//
//	3-64     16 bytes times the class, to 1 KiB
//	65-104   eight steps a doubling, to 32 KiB
//	105-255  whole pages: class 104+n is 4+n pages, 40 KiB and more
const (
	pageSize    = 8 << 10
	smallest    = 3   // class of the shortest item
	smallTop    = 64  // class of smallMax
	mediumTop   = 104 // class of mediumMax
	smallMax    = 1 << 10
	mediumMax   = 32 << 10
	maxClass    = 255
	largestSlot = (maxClass - mediumTop + mediumMax/pageSize) * pageSize

	bucketClass = bucketSize / granule
)

// classOf is the smallest class of at least size bytes, up to largestSlot.
func classOf(size int) uint8 {
	switch {
	case size <= smallMax:
		return uint8(max(smallest, (size+granule-1)/granule))
	case size <= mediumMax:
		exp := bits.Len(uint(size-1)) - 1 // 2^exp <= size-1 < 2^(exp+1)
		step := 1 << (exp - 3)
		return uint8(smallTop + 8*(exp-10) + (size-1<<exp+step-1)/step)
	default:
		return uint8(mediumTop - mediumMax/pageSize + (size+pageSize-1)/pageSize)
	}
}

// classSize is the bytes of a slot of the class.
func classSize(class uint8) int {
	switch c := int(class); {
	case c <= smallTop:
		return c * granule
	case c <= mediumTop:
		exp, step := 10+(c-smallTop-1)/8, (c-smallTop-1)%8+1
		return 1<<exp + step<<(exp-3)
	default:
		return (c - mediumTop + mediumMax/pageSize) * pageSize
	}
}

// spanPages is the pages of a span of the class: the fewest that hold four
// slots or more with a sixteenth of waste or less, at least two; and exactly
// the slot for classes of whole pages.
func spanPages(class uint8) int {
	size := classSize(class)
	if size > mediumMax {
		return size / pageSize
	}
	for n := 2; ; n++ {
		if bytes := n * pageSize; bytes/size >= 4 && bytes%size <= bytes/16 {
			return n
		}
	}
}
