package main

import (
	"bytes"
	"context"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// attempt is one round of storing a batch: what has to be done once more, and
// what may have been stored.
type attempt struct {
	again, unsure []client.Pair
	why           error // of the last of again, or of unsure
	gone          bool  // the pool, or the right to it
}

// store puts a batch. What surely was not stored because the cluster did not
// serve is put again, what may have been is looked after by settle. It returns
// false when no later batch can fare better: the pool is gone, or the cluster
// away too long.
func (l *loader) store(ctx context.Context, batch []client.Pair) bool {
	var unsure []client.Pair
	var why error
	gone := false
	away := l.patiently(ctx, batch, func(pairs []client.Pair) attempt {
		a := l.put(ctx, pairs)
		if len(a.unsure) > 0 {
			unsure, why = append(unsure, a.unsure...), a.why
		}
		gone = gone || a.gone
		return a
	})
	l.settle(ctx, unsure, why)
	return !gone && !away
}

// patiently repeats a round with what it leaves until nothing is left or no
// progress is made for too long; then the rest is refused and it returns true.
func (l *loader) patiently(ctx context.Context, pairs []client.Pair, round func([]client.Pair) attempt) (away bool) {
	give := time.Now().Add(l.patience)
	for len(pairs) > 0 {
		a := round(pairs)
		if len(a.again) == 0 {
			return false
		}
		if len(a.again) < len(pairs) {
			give = time.Now().Add(l.patience)
		}
		if pairs = a.again; !time.Now().Before(give) || !wait(ctx, l.pause) {
			for _, p := range pairs {
				l.refuse(about(p, a.why))
			}
			return true
		}
		l.retry(len(pairs))
	}
	return false
}

// put stores pairs once.
func (l *loader) put(ctx context.Context, pairs []client.Pair, opts ...client.PutOption) (a attempt) {
	for i, r := range l.pool.MultiPut(ctx, pairs, opts...) {
		switch kind := sundog.KindOf(r.Err); {
		case kind == 0:
			l.count(pairs[i])
		case kind == sundog.Unknown && ctx.Err() == nil:
			a.unsure, a.why = append(a.unsure, pairs[i]), r.Err
		case retryable(kind) && ctx.Err() == nil, kind == sundog.Exists:
			a.again, a.why = append(a.again, pairs[i]), r.Err
		default:
			l.refuse(about(pairs[i], r.Err))
			a.gone = a.gone || kind == sundog.NotFound || kind == sundog.Denied
		}
	}
	return a
}

// retryable kinds say that the cluster did not serve, and nothing was done.
func retryable(kind sundog.Kind) bool { return kind == sundog.Unavailable || kind == sundog.Timeout }

func about(p client.Pair, err error) error {
	return sundog.Errorf(sundog.KindOf(err), "key %.200q: %s", p.Key, textOf(err))
}

// settle finds out about pairs that were sent and not answered. One whose value
// is there is loaded. One whose key does not exist is put again on the condition
// that it still does not, which overwrites nobody. One with another value stays
// unknown: it may be older than ours, or another writer's and newer.
func (l *loader) settle(ctx context.Context, pairs []client.Pair, why error) {
	l.patiently(ctx, pairs, func(pairs []client.Pair) (a attempt) {
		keys := make([][]byte, len(pairs))
		for i := range pairs {
			keys[i] = pairs[i].Key
		}
		var absent []client.Pair
		for i, r := range l.pool.MultiGet(ctx, keys) {
			switch kind := sundog.KindOf(r.Err); {
			case kind == 0 && bytes.Equal(r.Item.Value, pairs[i].Value):
				l.count(pairs[i])
			case kind == sundog.NotFound:
				absent = append(absent, pairs[i])
			case retryable(kind) && ctx.Err() == nil:
				a.again = append(a.again, pairs[i])
			default:
				l.refuse(about(pairs[i], why))
			}
		}
		if len(absent) > 0 {
			l.retry(len(absent))
			b := l.put(ctx, absent, client.IfAbsent())
			a.again = append(append(a.again, b.again...), b.unsure...)
		}
		a.why = why // what is given up is still unknown
		return a
	})
}
