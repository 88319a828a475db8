package client

import (
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// reading is an exchange that reads one or more keys of one partition.
type reading struct {
	pool *Pool
	keys [][]byte
	at   []int // where in out the result of each of keys goes
	out  []GetResult
}

func (*reading) mutates() bool   { return false }
func (r *reading) target() *Pool { return r.pool }

func (r *reading) method() rpc.Method {
	if len(r.keys) == 1 {
		return rpc.MethodGet
	}
	return rpc.MethodMultiGet
}

func (r *reading) body() rpc.Body {
	if len(r.keys) == 1 {
		return rpc.EncodeGet(rpc.GetRequest{Pool: r.pool.id, Key: r.keys[0]})
	}
	return rpc.EncodeMultiGet(rpc.MultiGetRequest{Pool: r.pool.id, Keys: r.keys})
}

func (r *reading) settle(body []byte, node sundog.NodeID) *sundog.Error {
	if len(r.keys) == 1 {
		item, err := rpc.DecodeItem(body)
		if err != nil {
			return sundog.AsError(err)
		}
		r.out[r.at[0]] = GetResult{Item: itemOf(r.keys[0], item, node)}
		return nil
	}
	results, err := rpc.DecodeGetResults(body)
	if err == nil && len(results) != len(r.keys) {
		err = sundog.Errorf(sundog.Corrupt, "%d results for %d keys", len(results), len(r.keys))
	}
	if err != nil {
		return sundog.AsError(err)
	}
	var first *sundog.Error
	open := 0
	for i, res := range results {
		if res.Err == nil {
			r.out[r.at[i]] = GetResult{Item: itemOf(r.keys[i], res.Item, node)}
			continue
		}
		if act, _ := judge(res.Err.Kind, false); act == actEnd {
			r.out[r.at[i]] = GetResult{Err: res.Err}
			continue
		}
		if first == nil {
			first = res.Err
		}
		r.keys[open], r.at[open] = r.keys[i], r.at[i]
		open++
	}
	r.keys, r.at = r.keys[:open], r.at[:open]
	return first
}

func (r *reading) fail(err *sundog.Error) {
	for _, i := range r.at {
		r.out[i] = GetResult{Err: err}
	}
	r.keys, r.at = nil, nil
}

// split halves a batch whose reply does not fit in one frame; the second half
// goes into the exchange it returns.
func (r *reading) split() (exchange, bool) {
	half := len(r.keys) / 2
	if half == 0 {
		return nil, false
	}
	rest := &reading{pool: r.pool, keys: r.keys[half:], at: r.at[half:], out: r.out}
	r.keys, r.at = r.keys[:half:half], r.at[:half:half]
	return rest, true
}

// itemOf makes what callers see of an item on the wire. The value aliases the
// reply, which nobody else keeps.
func itemOf(key []byte, it rpc.Item, node sundog.NodeID) Item {
	out := Item{Key: key, Value: it.Value, Version: it.Version, Node: node, Via: ViaRPC}
	if out.Value == nil {
		out.Value = []byte{}
	}
	if it.Deadline != 0 {
		out.Deadline = time.UnixMilli(it.Deadline)
	}
	return out
}
