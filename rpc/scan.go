package rpc

import "github.com/sundog-kv/sundog"

// ScanRequest asks for a page of one partition of a pool. Cursor 0 begins;
// later pages hand back ScanReply.Next. Limit is the most items wanted.
type ScanRequest struct {
	Pool      sundog.PoolID
	Partition sundog.Partition
	Cursor    uint64
	Limit     int
	Prefix    []byte // only keys that begin with it; empty is all
	KeysOnly  bool   // leave the values out
}

// ScanItem is one pair of a [ScanReply]. Deadline as in [Item].
type ScanItem struct {
	Key      []byte
	Version  sundog.Version
	Deadline int64
	Value    []byte
}

// ScanReply is a page. Next is the cursor of the following page, 0 at the end;
// a page may be empty although more follow.
type ScanReply struct {
	Items []ScanItem
	Next  uint64
}

const scanKeysOnly = 1

// EncodeScan lays out the body of a [MethodScan] request. A negative limit is
// sent as 0, one above 2^32-1 as that.
func EncodeScan(r ScanRequest) Body {
	var flags byte
	if r.KeysOnly {
		flags = scanKeysOnly
	}
	b := make([]byte, 0, 32+len(r.Prefix))
	b = append(b, format, flags)
	b = le.AppendUint16(b, uint16(r.Partition))
	b = le.AppendUint64(b, uint64(r.Pool))
	b = le.AppendUint64(b, r.Cursor)
	b = le.AppendUint32(b, uint32(min(max(int64(r.Limit), 0), 1<<32-1)))
	return Body{appendSized(b, r.Prefix)}
}

// DecodeScan reads the body of a [MethodScan] request; the prefix aliases it.
// The error is of kind [sundog.Corrupt].
func DecodeScan(b []byte) (ScanRequest, error) {
	c := cursor{b: b}
	c.begin()
	flags := c.u8()
	if flags&^scanKeysOnly != 0 {
		c.fail("unknown flag of a scan")
	}
	r := ScanRequest{
		KeysOnly:  flags&scanKeysOnly != 0,
		Partition: sundog.Partition(c.u16()),
		Pool:      sundog.PoolID(c.u64()),
		Cursor:    c.u64(),
		Limit:     int(c.u32()),
		Prefix:    c.sized(),
	}
	if err := c.end(); err != nil {
		return ScanRequest{}, err
	}
	return r, nil
}

// EncodeScanReply lays out the body of a [MethodScan] answer. Values above
// 4 KiB are referenced, not copied.
func EncodeScanReply(r ScanReply) Body {
	size := 1 + 8 + 4
	for i := range r.Items {
		size += 4 + len(r.Items[i].Key) + itemHead
		if v := r.Items[i].Value; len(v) <= copyMax {
			size += len(v)
		}
	}
	w := newBuilder(size)
	w.tail = append(w.tail, format)
	w.tail = le.AppendUint64(w.tail, r.Next)
	w.tail = le.AppendUint32(w.tail, uint32(len(r.Items)))
	for i := range r.Items {
		it := &r.Items[i]
		w.tail = appendSized(w.tail, it.Key)
		w.item(&Item{Version: it.Version, Deadline: it.Deadline, Value: it.Value})
	}
	return w.done()
}

// DecodeScanReply reads the body of a [MethodScan] answer; keys and values
// alias it. The error is of kind [sundog.Corrupt].
func DecodeScanReply(b []byte) (ScanReply, error) {
	c := cursor{b: b}
	c.begin()
	r := ScanReply{Next: c.u64()}
	r.Items = make([]ScanItem, c.count(4+itemHead))
	for i := range r.Items {
		key := c.sized()
		it := c.item()
		r.Items[i] = ScanItem{Key: key, Version: it.Version, Deadline: it.Deadline, Value: it.Value}
		if c.err != nil {
			break
		}
	}
	if err := c.end(); err != nil {
		return ScanReply{}, err
	}
	return r, nil
}
