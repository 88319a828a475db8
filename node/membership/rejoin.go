package membership

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// Limits of one round of rejoining: seeds are few and all tried; of remembered
// addresses a random few, so that a long list of the dead costs little.
const (
	maxSeedsARound = 32
	maxPeersARound = 4
	maxLost        = 64
	lostLife       = time.Hour
	firstRejoin    = 100 * time.Millisecond // the pause after the first round; it doubles up to Timing.Rejoin
)

// lostMember is an address that was a member's until it died or left.
type lostMember struct {
	gossip string
	at     time.Time
}

// lostMembers remembers the newest maxLost of them: the library forgets the
// dead soon, and two halves of a network would then never meet again.
type lostMembers struct {
	mu  sync.Mutex // guards all
	all []lostMember
}

func (l *lostMembers) add(gossip string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(m lostMember) bool { return m.gossip == gossip || now.Sub(m.at) > lostLife })
	l.all = append(l.all, lostMember{gossip: gossip, at: now})
	if len(l.all) > maxLost {
		l.all = slices.Clone(l.all[len(l.all)-maxLost:])
	}
}

func (l *lostMembers) addresses(now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, m := range l.all {
		if now.Sub(m.at) <= lostLife {
			out = append(out, m.gossip)
		}
	}
	return out
}

// rejoinLoop tries, for ever, the seeds, peers and lost members that are not in
// the view. Rounds are close together after the start and whenever this node
// finds itself alone.
func (m *Membership) rejoinLoop(ctx context.Context) {
	pause, wasAlone := firstRejoin, true
	for {
		m.rejoin(ctx)
		alone := len(m.Members()) == 1
		if alone && !wasAlone {
			pause = firstRejoin
		}
		wasAlone = alone
		if !sleep(ctx, min(pause, m.cfg.Timing.Rejoin)/2+rand.N(min(pause, m.cfg.Timing.Rejoin)/2+1)) {
			return
		}
		pause = min(2*pause, m.cfg.Timing.Rejoin)
	}
}

// rejoin is one round: all addresses at once, so that one that hangs delays none.
func (m *Membership) rejoin(ctx context.Context) {
	present := map[string]bool{m.gossip: true}
	for _, member := range m.Members() {
		present[member.Gossip] = true
	}
	var tries sync.WaitGroup
	var failed sync.Map // addresses; a lock of its own, since attempts end in any order
	try := func(addr string) {
		tries.Go(func() {
			for _, a := range m.resolve(ctx, addr) {
				if present[a] {
					continue
				}
				if err := m.join(a); err != nil {
					failed.Store(a, err)
				}
			}
		})
	}
	for _, s := range some(m.cfg.Seeds, maxSeedsARound) {
		try(s)
	}
	remembered := m.lost.addresses(time.Now())
	if m.cfg.Peers != nil {
		remembered = append(remembered, m.cfg.Peers()...)
	}
	remembered = slices.DeleteFunc(remembered, func(a string) bool { return present[a] })
	slices.Sort(remembered)
	for _, p := range some(slices.Compact(remembered), maxPeersARound) {
		try(p)
	}
	tries.Wait()
	var last *string
	failed.Range(func(addr, err any) bool {
		text := sundog.AsError(err.(error)).Msg
		last = &text
		return true
	})
	if before := m.counters.lastError.Swap(last); before == nil && last != nil && len(m.Members()) == 1 {
		m.cfg.Logger.Warn("gossip: no other node is seen", "error", *last)
	}
}

// some returns up to n of the list, at random.
func some(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:n]
}

// join exchanges the full state with one address.
func (m *Membership) join(addr string) error {
	if _, err := m.lib.Join([]string{addr}); err != nil {
		m.counters.joinErrors.Add(1)
		return sundog.Errorf(sundog.Unavailable, "%s does not answer as a member would (down, not a Sundog gossip port, or with another secret or gossip key than this node's): %s",
			addr, strings.Join(strings.Fields(err.Error()), " "))
	}
	m.counters.joins.Add(1)
	return nil
}

// resolve returns the ip:port forms of host:port. memberlist's own resolving is
// not used: it cannot be ended, and asks for all records over TCP first.
func (m *Membership) resolve(ctx context.Context, addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timing.Stream)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		m.counters.joinErrors.Add(1)
		m.cfg.Logger.Debug("gossip: cannot resolve a seed", "seed", addr, "error", err)
		return nil
	}
	out := make([]string, 0, len(ips))
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return out
}
