package rpc

import "github.com/sundog-kv/sundog"

// OpResult is the outcome of one [Op]: Err, or what it did. An error may come
// with the version that the key has (Exists, Conflict).
type OpResult struct {
	Err     *sundog.Error
	Version sundog.Version // of the value stored; of a delete, the version the deletion itself took
	Int     int64          // OpIncr: the new sum
}

// Fields of an encoded OpResult that are present.
const (
	resultHasVersion = 1 << 0
	resultHasInt     = 1 << 1
	resultHasError   = 1 << 2
	resultFields     = resultHasVersion | resultHasInt | resultHasError
)

// EncodeMutate lays out the body of a [MethodMutate] request. Values above
// 4 KiB are referenced, not copied.
func EncodeMutate(ops []Op) Body {
	size := 5
	for i := range ops {
		size += opHead + 32 + len(ops[i].Key)
		if len(ops[i].Value) <= copyMax {
			size += len(ops[i].Value)
		}
	}
	w := newBuilder(size)
	w.tail = append(w.tail, format)
	w.tail = le.AppendUint32(w.tail, uint32(len(ops)))
	for i := range ops {
		w.tail = appendOpHead(w.tail, &ops[i])
		w.bytes(ops[i].Value)
	}
	return w.done()
}

// DecodeMutate reads the body of a [MethodMutate] request; keys and values
// alias it. The error is of kind [sundog.Corrupt].
func DecodeMutate(b []byte) ([]Op, error) {
	c := cursor{b: b}
	c.begin()
	ops := make([]Op, c.count(opHead))
	for i := range ops {
		if ops[i] = c.op(); c.err != nil {
			break
		}
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	return ops, nil
}

// EncodeResults lays out the body of a [MethodMutate] answer.
func EncodeResults(results []OpResult) Body {
	b := make([]byte, 0, 5+len(results)*(1+sundog.VersionSize+8))
	b = append(b, format)
	b = le.AppendUint32(b, uint32(len(results)))
	for i := range results {
		b = appendResult(b, &results[i])
	}
	return Body{b}
}

func appendResult(b []byte, r *OpResult) []byte {
	var fields byte
	if !r.Version.IsZero() {
		fields |= resultHasVersion
	}
	if r.Int != 0 {
		fields |= resultHasInt
	}
	if r.Err != nil {
		fields |= resultHasError
	}
	b = append(b, fields)
	if fields&resultHasVersion != 0 {
		b = r.Version.Append(b)
	}
	if fields&resultHasInt != 0 {
		b = le.AppendUint64(b, uint64(r.Int))
	}
	if fields&resultHasError != 0 {
		b = AppendError(b, r.Err)
	}
	return b
}

// DecodeResults reads the body of a [MethodMutate] answer. The error is of kind
// [sundog.Corrupt]; who sent n ops must check that there are n results.
func DecodeResults(b []byte) ([]OpResult, error) {
	c := cursor{b: b}
	c.begin()
	results := make([]OpResult, c.count(1))
	for i := range results {
		r := &results[i]
		fields := c.u8()
		if fields&^resultFields != 0 {
			c.fail("unknown field of a result")
		}
		if fields&resultHasVersion != 0 {
			r.Version = c.version()
		}
		if fields&resultHasInt != 0 {
			r.Int = int64(c.u64())
		}
		if fields&resultHasError != 0 {
			r.Err = c.remoteError()
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
