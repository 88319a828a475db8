package membership

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are counts since Open, and what is now.
type Stats struct {
	Members int // in the view, this node included
	Health  int // Lifeguard's score: 0 is healthy, more is this node itself being slow

	Suspected  uint64 // probes of others that nobody could confirm
	Refuted    uint64 // times this node had to deny that it is dead
	Failed     uint64 // members given up after suspicion
	Joins      uint64 // successful exchanges with seeds, peers and lost members
	JoinErrors uint64 // failed ones
	Foreign    uint64 // messages about nodes of another cluster, kept out
	Malformed  uint64 // messages with metadata that is not ours, kept out
	Conflicts  uint64 // one name at two addresses
	Refused    uint64 // streams closed unread, over the limit
	LastError  string // of the last failed join, "" when the last round had none
}

type counters struct {
	suspected, refuted, failed, joins, joinErrors, foreign, malformed, conflicts, refused atomic.Uint64
	lastError                                                                             atomic.Pointer[string]
}

// Stats returns the counts; cheap.
func (m *Membership) Stats() Stats {
	c := &m.counters
	s := Stats{
		Members: len(m.Members()), Health: m.lib.GetHealthScore(),
		Suspected: c.suspected.Load(), Refuted: c.refuted.Load(), Failed: c.failed.Load(),
		Joins: c.joins.Load(), JoinErrors: c.joinErrors.Load(),
		Foreign: c.foreign.Load(), Malformed: c.malformed.Load(), Conflicts: c.conflicts.Load(), Refused: c.refused.Load(),
	}
	if e := c.lastError.Load(); e != nil {
		s.LastError = *e
	}
	return s
}

// libraryLog takes memberlist's log lines ("[LEVEL] memberlist: text"), counts
// suspicions and passes the lines on, no more than a burst at a time: whoever
// sends garbage must not fill a disk.
//
// Counting lines is the only way: the library reports suspicion to nobody but
// its log and process-global metrics. A test fails when a new version words
// them differently.
type libraryLog struct {
	out      *slog.Logger
	counters *counters

	debug, other bucket // apart, so that chatter does not crowd out what matters
}

const (
	logBurst = 50 // lines
	logRate  = 5  // lines a second
)

func newLibraryLog(out *slog.Logger, c *counters) *log.Logger {
	return log.New(&libraryLog{out: out, counters: c}, "", 0)
}

// Write takes one line, as log.Logger gives it.
func (l *libraryLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if name, msg, ok := strings.Cut(rest, "] "); ok {
			level, text = libraryLevel(name), msg
		}
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	l.count(text)
	b := &l.other
	if level == slog.LevelDebug {
		b = &l.debug
	}
	dropped, pass := b.admit(time.Now())
	if dropped > 0 {
		l.out.Warn("gossip: lines left out of this log", "lines", dropped)
	}
	if pass {
		l.print(level, "gossip: "+text)
	}
	return len(line), nil
}

func (l *libraryLog) print(level slog.Level, text string) {
	switch level {
	case slog.LevelDebug:
		l.out.Debug(text)
	case slog.LevelInfo:
		l.out.Info(text)
	default:
		l.out.Warn(text)
	}
}

func (l *libraryLog) count(text string) {
	switch {
	case strings.HasPrefix(text, "Suspect ") && strings.Contains(text, "has failed"):
		l.counters.suspected.Add(1)
	case strings.HasPrefix(text, "Refuting a suspect"), strings.HasPrefix(text, "Refuting a dead"):
		l.counters.refuted.Add(1)
	case strings.HasPrefix(text, "Marking ") && strings.Contains(text, "as failed"):
		l.counters.failed.Add(1)
	}
}

// bucket is a token bucket that begins full.
type bucket struct {
	mu      sync.Mutex // guards what follows
	used    float64    // tokens
	at      time.Time  // when used was brought up to date
	dropped int        // lines since the last that passed
}

// admit tells whether a line may pass, and how many were left out before it.
func (b *bucket) admit(now time.Time) (dropped int, pass bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-logRate*now.Sub(b.at).Seconds())
	b.at = now
	if b.used > logBurst-1 {
		b.dropped++
		return 0, false
	}
	b.used++
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}

// libraryLevel maps the library's words; its errors are mostly other nodes'
// faults, and none is ours to act on.
func libraryLevel(name string) slog.Level {
	switch name {
	case "DEBUG":
		return slog.LevelDebug
	case "INFO":
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
