package sundog

import (
	"context"
	"errors"
	"fmt"
)

// Kind classifies an error by what its receiver should do. A Kind is itself an
// error, so errors.Is(err, sundog.NotFound) works on both sides of the wire.
// Numbers are sent and append-only.
type Kind uint8

// The kinds.
const (
	Invalid     Kind = 1  // the request can never succeed as written; change it
	NotFound    Kind = 2  // no such key, pool or node
	Exists      Kind = 3  // it is there already (IfAbsent, pool create)
	Conflict    Kind = 4  // the version is another (IfVersion), or the state forbids it
	TooLarge    Kind = 5  // over a size limit; Used and Limit are set
	NoSpace     Kind = 6  // over a quota or out of memory; Used and Limit are set
	Locked      Kind = 7  // held by another
	Denied      Kind = 8  // identity or right missing
	NotOwner    Kind = 9  // ask another node (Leader, if known); not executed
	Stale       Kind = 10 // one side's map is old (Epoch says); not executed
	Unavailable Kind = 11 // not executed, and may be later
	Timeout     Kind = 12 // the deadline passed; a read, or known not executed
	Unknown     Kind = 13 // a mutation whose outcome is not known
	Corrupt     Kind = 14 // bytes that fail their checksum or format
	Closed      Kind = 15 // this object was closed by its own side
	Internal    Kind = 16 // a fault of ours, counted and logged
)

var kindNames = [...]string{
	Invalid: "invalid", NotFound: "not found", Exists: "exists", Conflict: "conflict",
	TooLarge: "too large", NoSpace: "no space", Locked: "locked", Denied: "denied",
	NotOwner: "not owner", Stale: "stale", Unavailable: "unavailable", Timeout: "timeout",
	Unknown: "outcome unknown", Corrupt: "corrupt", Closed: "closed", Internal: "internal",
}

// Error returns the kind's name.
func (k Kind) Error() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is an error of a kind with what its receiver needs to act on it.
type Error struct {
	Kind   Kind
	Msg    string // for a person: what happened and what to do
	Epoch  Epoch  // Stale, NotOwner: the sender's map epoch
	Leader NodeID // NotOwner: who leads, if known
	Used   int64  // TooLarge, NoSpace: bytes asked for or in use
	Limit  int64  // TooLarge, NoSpace: bytes allowed

	cause error // local only, for errors.Is; never sent
}

// Errorf makes an Error; a %w in the format keeps its cause for errors.Is.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Msg: err.Error(), cause: errors.Unwrap(err)}
}

// Error returns the kind and the message.
func (e *Error) Error() string {
	if e.Msg == "" {
		return e.Kind.Error()
	}
	return e.Kind.Error() + ": " + e.Msg
}

// Is matches the error's Kind.
func (e *Error) Is(target error) bool { return target == error(e.Kind) }

// Unwrap returns the local cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of err: the first Error or Kind in its chain, Timeout
// for an exceeded context deadline, Closed for a cancelled context, otherwise
// Internal. It returns 0 for nil.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Closed
	}
	return Internal
}

// AsError returns err as an *Error, wrapping it with its [KindOf] where it is
// not one already; nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: KindOf(err), Msg: err.Error(), cause: err}
}
