package raftgroup

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger is the hclog.Logger that raft wants, over a slog.Logger. All of it is
// debug: raft tells every election and every lost connection of every group, at
// each try. What an operator must know, this room and the node tell themselves:
// a replica that stopped (OnFailure), a peer out of reach, a sick disk.
type raftLogger struct {
	log  *slog.Logger
	ctx  context.Context // the group's lifetime: slog wants one, and uses nothing of it
	args []any
}

func newRaftLogger(l *slog.Logger, life *lifetime) hclog.Logger {
	return &raftLogger{log: l, ctx: life}
}

// Log is of hclog.Logger, as are all below.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if !l.enabled() {
		return
	}
	plain := make([]any, len(args))
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			plain[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		} else {
			plain[i] = a
		}
	}
	l.log.Log(l.ctx, slog.LevelDebug, "raft: "+msg, append(plain, "level", level.String())...)
}

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) enabled() bool { return l.log.Enabled(l.ctx, slog.LevelDebug) }
func (l *raftLogger) IsTrace() bool { return l.enabled() }
func (l *raftLogger) IsDebug() bool { return l.enabled() }
func (l *raftLogger) IsInfo() bool  { return l.enabled() }
func (l *raftLogger) IsWarn() bool  { return l.enabled() }
func (l *raftLogger) IsError() bool { return l.enabled() }

func (l *raftLogger) ImpliedArgs() []any { return l.args }
func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{log: l.log.With(args...), ctx: l.ctx, args: append(append([]any(nil), l.args...), args...)}
}
func (l *raftLogger) Name() string                   { return "raft" }
func (l *raftLogger) Named(string) hclog.Logger      { return l }
func (l *raftLogger) ResetNamed(string) hclog.Logger { return l }
func (l *raftLogger) SetLevel(hclog.Level)           {} // slog's handler decides
func (l *raftLogger) GetLevel() hclog.Level          { return hclog.Debug }

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.log.Handler(), slog.LevelDebug)
}
func (l *raftLogger) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(opts).Writer()
}
