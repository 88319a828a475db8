package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
)

// The exit codes; docs/cli.md lists them.
const (
	exitDone        = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnavailable = 4
	exitUnknown     = 5
	exitConflict    = 6
	exitNoSpace     = 7
	exitDenied      = 8
	exitInterrupted = 130 // as a shell has it for SIGINT
)

// exitCode is the process's answer to err.
func exitCode(err error) int {
	if _, ok := errors.AsType[*interruption](err); ok {
		return exitInterrupted
	}
	switch sundog.KindOf(err) {
	case 0:
		return exitDone
	case sundog.Invalid:
		return exitUsage
	case sundog.NotFound:
		return exitNotFound
	case sundog.Unavailable, sundog.Timeout, sundog.NotOwner, sundog.Stale:
		return exitUnavailable
	case sundog.Unknown:
		return exitUnknown
	case sundog.Exists, sundog.Conflict, sundog.Locked:
		return exitConflict
	case sundog.NoSpace, sundog.TooLarge:
		return exitNoSpace
	case sundog.Denied:
		return exitDenied
	}
	return exitOther
}

// errorJSON is how an error looks in --json.
type errorJSON struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Used    *int64 `json:"used,omitempty"` // of too large and no space, always
	Limit   *int64 `json:"limit,omitempty"`
}

func errorOf(err error) errorJSON {
	e := errorJSON{Kind: sundog.KindOf(err).Error(), Message: err.Error()}
	if se, ok := errors.AsType[*sundog.Error](err); ok {
		if se.Kind == sundog.TooLarge || se.Kind == sundog.NoSpace {
			e.Used, e.Limit = &se.Used, &se.Limit
		}
		if error(se) == err && se.Msg != "" {
			e.Message = se.Msg
		}
	}
	return e
}

// report tells of a command's failure: one JSON line on stdout under --json,
// else a sentence on stderr with what to do next where that is known.
func (a *app) report(cmd *cobra.Command, err error) {
	if a.json && a.stdout.failed() == nil {
		if !a.wrote.Load() {
			a.stdout.last(encoded(map[string]errorJSON{"error": errorOf(err)}))
		}
		return
	}
	if errors.Is(err, sundog.Invalid) {
		fmt.Fprintf(a.stderr, "%s: %s\n", cmd.CommandPath(), textOf(err))
	} else {
		fmt.Fprintf(a.stderr, "%s: %v\n", cmd.CommandPath(), err)
	}
	if hint := a.hint(err); hint != "" {
		fmt.Fprintln(a.stderr, hint)
	}
}

// hint is advice that fits the kind of an error, "" for none.
func (a *app) hint(err error) string {
	switch sundog.KindOf(err) {
	case sundog.Unavailable, sundog.Timeout:
		if a.reached.Load() {
			return "sundog nodes and sundog partitions show who lives and leads; --timeout waits longer."
		}
		return fmt.Sprintf("Is a node running at %s? Name others with --addr or SUNDOG_ADDR; --timeout waits longer.", a.addr)
	case sundog.Unknown:
		return "The change may or may not have happened: read the key to find out before you do it again."
	}
	return ""
}

// encoded is v as one line of JSON.
func encoded(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends with a newline, and makes no other
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only what this program defines is encoded
	}
	return b.Bytes()
}

// line prints v as the one line of --json.
func (a *app) line(v any) {
	_, _ = a.stdout.Write(encoded(v)) // run asks whether it failed
	a.wrote.Store(true)
}

// show prints v under --json, else whatever human prints.
func (a *app) show(v any, human func(w io.Writer)) {
	if a.json {
		a.line(v)
		return
	}
	human(a.stdout)
}

// table prints aligned columns: a head, then a row for each of n.
func table(w io.Writer, head string, n int, row func(i int) string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for i := range n {
		fmt.Fprintln(t, row(i))
	}
	_ = t.Flush()
}

// keyJSON is a key in JSON: as text where it is text, else in base64 too.
type keyJSON struct {
	Key    string `json:"key"`
	Base64 []byte `json:"key_base64,omitempty"` // only where the key is not UTF-8
}

func keyOf(key []byte) keyJSON {
	k := keyJSON{Key: string(key)}
	if !utf8.Valid(key) {
		k.Base64 = key
	}
	return k
}

// logger is for stderr, at the level of SUNDOG_LOG. It first warns of variables
// that look like ours and are not. A command makes one logger.
func (a *app) logger(otherwise string) (*slog.Logger, error) {
	var level slog.Level
	switch name := a.env("SUNDOG_LOG", otherwise); name {
	case "off":
		return slog.New(slog.DiscardHandler), nil
	case "error", "warn", "info", "debug":
		if err := level.UnmarshalText([]byte(name)); err != nil {
			return nil, err
		}
	default:
		return nil, sundog.Errorf(sundog.Invalid, "SUNDOG_LOG=%s: use off, error, warn, info or debug", name)
	}
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
	for _, s := range strangers(a.environ()) {
		if s[1] == "" {
			log.Warn("a variable that nothing reads", "name", s[0])
		} else {
			log.Warn("a variable that nothing reads", "name", s[0], "near", s[1])
		}
	}
	return log, nil
}
