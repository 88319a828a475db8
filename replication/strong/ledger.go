package strong

// ledger accounts one pool's bytes (keys and values) in one partition, exactly,
// for the admission that its leader does before the log.
//
// A key's charge is the largest of its size now and the sizes that ops in
// flight may give it. The sum of charges bounds what the pool can come to hold
// in whatever order the ops in flight are applied, whichever of them are never
// applied, and whatever is deleted or expires meanwhile; so admitting an op only
// when the sum stays within the limit keeps used within the limit always. A put
// over an old value is thus counted by the difference.
//
// Its owner holds the machine's lock for every call.
type ledger struct {
	used    int64              // applied
	extra   int64              // sum over pending of their charge above their size now
	pending map[string]*charge // keys with ops in flight on this leader
}

// charge is one key's ops in flight.
type charge struct {
	ops  int   // in flight
	size int64 // now, in the table
	top  int64 // the largest that one of them may make it
}

func (c *charge) above() int64 { return max(0, c.top-c.size) }

// admit reserves for an op that may make the key size bytes large; now is what
// it holds in the table. It reports false, and reserves nothing, when that
// could take the pool over the limit; an op that needs no further room always
// passes, also in a pool that is over its limit because that was lowered.
func (l *ledger) admit(key []byte, now, size, limit int64) bool {
	c := l.pending[string(key)]
	if c == nil {
		c = &charge{size: now}
	}
	more := max(0, max(c.top, size)-c.size) - c.above()
	if more > 0 && l.used+l.extra+more > limit {
		return false
	}
	c.ops++
	c.top = max(c.top, size)
	l.extra += more
	if c.ops == 1 {
		if l.pending == nil {
			l.pending = make(map[string]*charge)
		}
		l.pending[string(key)] = c
	}
	return true
}

// done ends an admitted op, whatever became of it.
func (l *ledger) done(key []byte) {
	c := l.pending[string(key)]
	if c == nil {
		return
	}
	if c.ops--; c.ops == 0 {
		l.extra -= c.above()
		delete(l.pending, string(key))
	}
}

// applied follows Apply: the key went from one size to another, 0 is absent.
func (l *ledger) applied(key []byte, from, to int64) {
	l.used += to - from
	if len(l.pending) == 0 {
		return
	}
	if c := l.pending[string(key)]; c != nil {
		l.extra -= c.above()
		c.size = to
		l.extra += c.above()
	}
}
