package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// mutation is an exchange of one or more operations on one partition. Each gets
// its outcome once; those still open go out again.
type mutation struct {
	pool *Pool
	ops  []rpc.Op
	at   []int // where in out the outcome of each of ops goes
	out  []PutResult
	ints []int64 // Incr: the new values, as out; nil otherwise
}

func (*mutation) method() rpc.Method { return rpc.MethodMutate }
func (*mutation) mutates() bool      { return true }
func (m *mutation) target() *Pool    { return m.pool }
func (m *mutation) body() rpc.Body   { return rpc.EncodeMutate(m.ops) }

func (m *mutation) end(i int, r PutResult, n int64) {
	if sundog.KindOf(r.Err) == sundog.Unknown {
		m.pool.c.counters.unknowns.Add(1)
	}
	r.Err = m.pool.named(r.Err)
	m.out[i] = r
	if m.ints != nil {
		m.ints[i] = n
	}
}

// settle gives each answered operation its outcome and keeps those that surely
// were not executed and may succeed elsewhere. The error is that of the first
// kept one, or tells that the reply cannot be read.
func (m *mutation) settle(body []byte, _ sundog.NodeID) *sundog.Error {
	results, err := rpc.DecodeResults(body)
	if err == nil && len(results) != len(m.ops) {
		err = sundog.Errorf(sundog.Corrupt, "%d results for %d operations", len(results), len(m.ops))
	}
	if err != nil {
		return sundog.AsError(err)
	}
	var first *sundog.Error
	open := 0
	for i, r := range results {
		if r.Err != nil {
			switch act, _ := judge(r.Err.Kind, true); act {
			case actEnd:
				m.end(m.at[i], PutResult{Err: r.Err}, 0)
			case actUnknown:
				m.end(m.at[i], PutResult{Err: unknown(r.Err)}, 0)
			default:
				if first == nil {
					first = r.Err
				}
				m.ops[open], m.at[open] = m.ops[i], m.at[i]
				open++
			}
			continue
		}
		m.end(m.at[i], PutResult{Version: r.Version}, r.Int)
	}
	m.ops, m.at = m.ops[:open], m.at[:open]
	return first
}

func (m *mutation) fail(err *sundog.Error) {
	for _, i := range m.at {
		m.end(i, PutResult{Err: err}, 0)
	}
	m.ops, m.at = nil, nil
}

// named makes an error that a node sent speak of the pool by its name.
func (p *Pool) named(err error) error {
	e, ok := errors.AsType[*sundog.Error](err)
	id := fmt.Sprintf("pool %d ", p.id)
	if !ok || !strings.Contains(e.Msg, id) {
		return err
	}
	named := *e
	named.Msg = strings.Replace(e.Msg, id, fmt.Sprintf("pool %q ", p.name), 1)
	return &named
}

func (m *mutation) split() (exchange, bool) { return nil, false }

// unknown wraps what hid the outcome of a mutation.
func unknown(err *sundog.Error) *sundog.Error {
	if err.Kind == sundog.Unknown {
		return err
	}
	return sundog.Errorf(sundog.Unknown, "sent, and no answer that tells whether it was done: %w", err)
}
