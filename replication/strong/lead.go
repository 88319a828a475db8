package strong

import (
	"context"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

const (
	tickEvery  = 100 * time.Millisecond // at most one tick of our own in this time
	retryEvery = 50 * time.Millisecond
	groomEvery = 250 * time.Millisecond
	never      = time.Duration(-1)
)

// reign is one term of leadership.
type reign struct {
	term uint64
	open chan struct{} // closed when mutations may be admitted
	over chan struct{} // closed when this replica leads no more

	mu    sync.Mutex // guards the rest
	limbo []ticket   // room for mutations that may yet be applied
	ended bool
}

// end marks the reign as over and returns what is in limbo: the next reign of
// this replica admits nothing before it has applied all that came before.
func (r *reign) end() []ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.ended = true
		close(r.over)
	}
	return r.takeLocked()
}

func (r *reign) takeLocked() []ticket {
	t := r.limbo
	r.limbo = nil
	return t
}

// keep puts tickets in limbo and reports whether it did: not after the end.
func (r *reign) keep(tickets []ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.limbo = append(r.limbo, tickets...)
	}
	return !r.ended
}

func (r *reign) takeLimbo() []ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked()
}

func (r *reign) isOpen() bool {
	select {
	case <-r.open:
		return true
	default:
		return false
	}
}

// onLeader is called by the group, in order, when leadership changes.
func (p *Partition) onLeader(leading bool, term uint64) {
	var next *reign
	if leading {
		next = &reign{term: term, open: make(chan struct{}), over: make(chan struct{})}
	}
	if last := p.reign.Swap(next); last != nil {
		p.settle(last.end())
	}
	poke(p.wake)
}

// lead does what a leader does unasked. It waits for its wake token, or for the
// time that its last round named.
func (p *Partition) lead(ctx context.Context) {
	var done chores
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		again := p.duties(ctx, &done)
		timer.Stop()
		var alarm <-chan time.Time
		if again != never {
			timer.Reset(again)
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-alarm:
		}
	}
}

// chores is what lead remembers of the rounds before.
type chores struct {
	reign  *reign
	synced *ring.Map // the map whose pools this reign has brought in
	tick   time.Time // of the last one
}

// duties does one round and returns when the next is due, never for not before
// a wake.
func (p *Partition) duties(ctx context.Context, done *chores) time.Duration {
	r := p.reign.Load()
	if r == nil {
		return never
	}
	if done.reign != r {
		*done = chores{reign: r, tick: done.tick}
	}
	if !r.isOpen() {
		// Once an entry of this term is applied, so is every committed one of the
		// terms before: what the tables hold is what admission must count.
		if err := p.group.Barrier(ctx); err != nil {
			return retryEvery
		}
		close(r.open)
	}
	if m := p.getMap(); m != nil && m != done.synced {
		if err := p.SyncPools(ctx, m); err != nil {
			p.logger.Debug("pools not synced", "partition", p.partition, "reason", err)
			return retryEvery
		}
		done.synced = m
	}
	if !p.leaveLimbo(ctx, r) {
		return retryEvery
	}
	return p.tickWhenDue(ctx, &done.tick)
}

// leaveLimbo settles the mutations whose outcome their callers did not wait for:
// after a later barrier they have been applied, or never will be.
func (p *Partition) leaveLimbo(ctx context.Context, r *reign) bool {
	tickets := r.takeLimbo()
	if len(tickets) == 0 {
		return true
	}
	if err := p.group.Barrier(ctx); err != nil && r.keep(tickets) {
		return false
	}
	p.settle(tickets)
	return true
}

func (p *Partition) tickWhenDue(ctx context.Context, lastTick *time.Time) time.Duration {
	next := p.machine.due.Load()
	if next == neverDeadline {
		return never
	}
	left := time.Duration(min(next-p.now(), int64(time.Hour/time.Millisecond))) * time.Millisecond
	left = max(left, tickEvery-time.Since(*lastTick))
	if left > 0 {
		return left
	}
	*lastTick = time.Now()
	if err := p.tick(ctx); err != nil {
		return retryEvery
	}
	return tickEvery
}

// tick commits an entry of the present time, which removes what is due.
func (p *Partition) tick(ctx context.Context) error {
	_, err := p.group.Propose(ctx, appendTick(nil))
	return err
}

// SyncPools brings the partition's pool set up to the map's, through the log.
// It does nothing where the set is the same or newer; otherwise only a leader
// can (NotOwner). The leader also does it by itself after an election.
func (p *Partition) SyncPools(ctx context.Context, m *ring.Map) error {
	set := poolSetOf(m)
	if v := p.machine.guard.current.Load(); v != nil && v.covers(set) {
		return nil
	}
	_, err := p.group.Propose(ctx, appendPools(nil, set))
	return p.located(err)
}

// poolSetOf takes the strong pools out of a map, in ascending order as there.
func poolSetOf(m *ring.Map) poolSet {
	set := poolSet{catalog: m.Epoch}
	for _, pl := range m.Pools {
		if pl.Spec.Consistency == sundog.Strong {
			set.pools = append(set.pools, poolSpec{id: pl.ID, quota: pl.Spec.Quota, maxValue: pl.Spec.MaxValue})
		}
	}
	return set
}

// covers reports whether applying the set would change nothing.
func (v *view) covers(set poolSet) bool {
	if set.catalog <= v.catalog {
		return true
	}
	if len(set.pools) != len(v.pools) {
		return false
	}
	for _, spec := range set.pools {
		if pl := v.pools[spec.id]; pl == nil || *pl.spec.Load() != spec {
			return false
		}
	}
	return true
}

// groom gives memory back after changes, on every replica, a few times a second
// while there is something to do.
func (p *Partition) groom(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for more := false; ; {
		if !more {
			select {
			case <-ctx.Done():
				return
			case <-p.dirty:
			}
		}
		timer.Reset(groomEvery)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		more = p.machine.compact(ctx)
	}
}

// hash works off the checks that Apply queued.
func (p *Partition) hash(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-p.checks:
			if sum, ok := job.hash(ctx); ok {
				p.sums.put(job.id, sum)
			}
			job.close()
		}
	}
}

func (p *Partition) queueCheck(job checkJob) bool {
	select {
	case p.checks <- job:
		return true
	default:
		return false
	}
}
