package table

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// aligned copies b into memory of n bytes that begins at a multiple of 8, as
// mapped memory and a reader's buffers do.
func aligned(b []byte, n int) []byte {
	out := make([]byte, max(n, 8))
	return out[:n:n][:copy(out[:n], b)+n-min(len(b), n)]
}

// FuzzItem: no bytes make the item decoder panic or read past them, and what
// it accepts is exactly an item that was written for that place.
func FuzzItem(f *testing.F) {
	const inc = 5
	at := makeAddress(1, 64)
	for _, c := range []content{
		{key: []byte("k")},
		{key: []byte("key"), value: bytes.Repeat([]byte("v"), 100), version: version(1 << 40)},
		{key: []byte("key"), value: []byte("v"), version: sundog.Version{Clock: 1, Node: 2}, deadline: 3},
	} {
		c.keySum, c.valueSum = keyHash(c.key), keyHash(c.value)
		b := make([]byte, (c.size()+7)/8*8)
		writeItem(b, inc, at, &c)
		f.Add(b, c.key)
		markDead(b)
		f.Add(b, c.key)
	}
	f.Add([]byte{0xa5, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte("x"))
	f.Fuzz(func(t *testing.T, data, key []byte) {
		b := aligned(data, (len(data)+7)/8*8)
		r, ok := parseItem(b)
		if !ok {
			return
		}
		require.LessOrEqual(t, itemFixed+len(r.key)+len(r.value), len(b))
		dst := []byte("before")
		it, out := readItem(b, inc, at, key, keyHash(key), dst)
		require.NotEqual(t, miss, out)
		if out != hit {
			return
		}
		require.Equal(t, append([]byte("before"), r.value...), it.Value)
		again := make([]byte, len(b))
		c := content{key: key, value: it.Value[6:], keySum: keyHash(key), valueSum: keyHash(it.Value[6:]), version: it.Version, deadline: it.Deadline}
		if c.size() <= len(again) { // flags may be set for a node or deadline of zero
			writeItem(again, inc, at, &c)
		}
	})
}

// FuzzBucket: a reader that is given any bytes as a bucket neither panics nor
// finds a key in them; with the checksum made right it may believe them, still
// without a fault.
func FuzzBucket(f *testing.F) {
	tab, _, _ := newTable(f, 1<<20)
	for i := range 12 {
		require.NoError(f, tab.Put(sizedKey(i), telling(sizedKey(i), version(1), i*40), version(1), 0, 1))
	}
	for kind, k := range tab.buckets(0) {
		f.Add(append([]byte(nil), k.b...), sizedKey(1), uint8(kind), true)
	}
	f.Add([]byte{}, []byte("k"), uint8(0), false)
	f.Add(bytes.Repeat([]byte{0xff}, bucketSize), []byte("k"), uint8(2), true)
	f.Fuzz(func(t *testing.T, data, key []byte, kind uint8, fix bool) {
		if len(key) == 0 || len(key) > sundog.MaxKey {
			return
		}
		g := aligned(data, groupSize)
		copy(g[int(kind)%bucketKinds*bucketSize:], data[:min(len(data), bucketSize)])
		if fix {
			for k := range bucketKinds {
				b := g[k*bucketSize:][:bucketSize]
				m := uint64(k)<<kindShift | loadWord(b, offMeta)&^(uint64(kindMask)<<kindShift)&0xffff_ffff
				storeWord(b, offMeta, m)
				storeWord(b, offIncarnation, tab.incarnation)
				if n := int(m & metaWords); n <= maxWords {
					storeWord(b, offSum, bucketSum(b, n))
				}
			}
		}
		at := makeAddress(1, 0)
		geo := &geometry{epoch: 1 << 62, groups: 1, segs: []segment{{g, at}}}
		h := keyHash(key)
		for _, c := range candidatesOf(h, 1) {
			it, ok := tab.lookIn(mainOf(geo, c), mainOf(geo, c).meta(), geo, c, key, h, nil)
			require.True(t, !ok || told(key, it) || len(it.Value) <= len(data), "at most an item of the table or of the bytes")
			tab.absent(geo, c, key, h)
		}
		for k := range bucketKinds {
			b := g[k*bucketSize:][:bucketSize]
			var im image
			im.take(b)
			for i := range min(int(loadWord(b, offMeta)&metaWords), maxWords) {
				if w := word(loadWord(b, wordAt(i))); w.inline() {
					if in := cell(b, w); in != nil {
						parseItem(in)
					}
				} else if in, _ := tab.itemOf(bucket{b, at}, w); in != nil {
					parseItem(in)
				}
			}
		}
	})
}
