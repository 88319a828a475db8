package rpc

import "github.com/sundog-kv/sundog"

// GetRequest asks for one key.
type GetRequest struct {
	Pool sundog.PoolID
	Key  []byte
}

// Item is a stored value. Deadline is when it expires, in Unix milliseconds;
// 0 is never.
type Item struct {
	Version  sundog.Version
	Deadline int64
	Value    []byte
}

// MultiGetRequest asks for many keys of one pool.
type MultiGetRequest struct {
	Pool sundog.PoolID
	Keys [][]byte
}

// GetResult is what became of one key of a [MultiGetRequest]: Err or Item.
type GetResult struct {
	Err  *sundog.Error
	Item Item
}

// itemHead is the size of an encoded item before its value: version, deadline,
// length.
const itemHead = sundog.VersionSize + 8 + 4

// minResultSize is the smallest encoded GetResult: its tag and an error.
const minResultSize = 1 + minErrorSize

// Tags of an encoded GetResult.
const (
	resultItem  = 0
	resultError = 1
)

// EncodeGet lays out the body of a [MethodGet] request.
func EncodeGet(r GetRequest) Body {
	b := make([]byte, 0, 1+8+4+len(r.Key))
	b = append(b, format)
	b = le.AppendUint64(b, uint64(r.Pool))
	return Body{appendSized(b, r.Key)}
}

// DecodeGet reads the body of a [MethodGet] request; the key aliases it. The
// error is of kind [sundog.Corrupt].
func DecodeGet(b []byte) (GetRequest, error) {
	c := cursor{b: b}
	c.begin()
	r := GetRequest{Pool: sundog.PoolID(c.u64()), Key: c.sized()}
	if err := c.end(); err != nil {
		return GetRequest{}, err
	}
	return r, nil
}

// EncodeItem lays out the body of a [MethodGet] answer. A value above 4 KiB is
// referenced, not copied.
func EncodeItem(it Item) Body {
	size := 1 + itemHead
	if len(it.Value) <= copyMax {
		size += len(it.Value)
	}
	w := newBuilder(size)
	w.tail = append(w.tail, format)
	w.item(&it)
	return w.done()
}

func (w *builder) item(it *Item) {
	w.tail = it.Version.Append(w.tail)
	w.tail = le.AppendUint64(w.tail, uint64(it.Deadline))
	w.tail = le.AppendUint32(w.tail, size32(it.Value))
	w.bytes(it.Value)
}

// DecodeItem reads the body of a [MethodGet] answer; the value aliases it. The
// error is of kind [sundog.Corrupt].
func DecodeItem(b []byte) (Item, error) {
	c := cursor{b: b}
	c.begin()
	it := c.item()
	if err := c.end(); err != nil {
		return Item{}, err
	}
	return it, nil
}

func (c *cursor) item() Item {
	return Item{Version: c.version(), Deadline: int64(c.u64()), Value: c.sized()}
}

// EncodeMultiGet lays out the body of a [MethodMultiGet] request.
func EncodeMultiGet(r MultiGetRequest) Body {
	size := 1 + 8 + 4
	for _, k := range r.Keys {
		size += 4 + len(k)
	}
	b := make([]byte, 0, size)
	b = append(b, format)
	b = le.AppendUint64(b, uint64(r.Pool))
	b = le.AppendUint32(b, uint32(len(r.Keys)))
	for _, k := range r.Keys {
		b = appendSized(b, k)
	}
	return Body{b}
}

// DecodeMultiGet reads the body of a [MethodMultiGet] request; the keys alias
// it. The error is of kind [sundog.Corrupt].
func DecodeMultiGet(b []byte) (MultiGetRequest, error) {
	c := cursor{b: b}
	c.begin()
	r := MultiGetRequest{Pool: sundog.PoolID(c.u64())}
	r.Keys = make([][]byte, c.count(4))
	for i := range r.Keys {
		r.Keys[i] = c.sized()
	}
	if err := c.end(); err != nil {
		return MultiGetRequest{}, err
	}
	return r, nil
}

// EncodeGetResults lays out the body of a [MethodMultiGet] answer. Values above
// 4 KiB are referenced, not copied.
func EncodeGetResults(results []GetResult) Body {
	size := 1 + 4
	for i := range results {
		size += 1 + itemHead
		if v := results[i].Item.Value; len(v) <= copyMax {
			size += len(v)
		}
	}
	w := newBuilder(size)
	w.tail = append(w.tail, format)
	w.tail = le.AppendUint32(w.tail, uint32(len(results)))
	for i := range results {
		if e := results[i].Err; e != nil {
			w.tail = AppendError(append(w.tail, resultError), e)
			continue
		}
		w.tail = append(w.tail, resultItem)
		w.item(&results[i].Item)
	}
	return w.done()
}

// DecodeGetResults reads the body of a [MethodMultiGet] answer; values alias
// it. The error is of kind [sundog.Corrupt]; who asked for n keys must check
// that there are n results.
func DecodeGetResults(b []byte) ([]GetResult, error) {
	c := cursor{b: b}
	c.begin()
	results := make([]GetResult, c.count(minResultSize))
	for i := range results {
		switch tag := c.u8(); tag {
		case resultItem:
			results[i].Item = c.item()
		case resultError:
			results[i].Err = c.remoteError()
		default:
			c.fail("unknown tag of a result")
		}
		if c.err != nil {
			break
		}
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	return results, nil
}
