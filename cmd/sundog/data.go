package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// mutationJSON is the line of put and del.
type mutationJSON struct {
	keyJSON
	Version sundog.Version `json:"version"`
}

func (a *app) putCommand() *cobra.Command {
	var file, ifVersion string
	var ttl time.Duration
	var ifAbsent bool
	cmd := &cobra.Command{
		Use:   "put POOL KEY [VALUE]",
		Short: "Store a value and print its version",
		Example: `  sundog put pkgs greeting hello
  sundog put pkgs logo -f logo.png
  date | sundog put pkgs now -
  sundog put pkgs once x --if-absent --ttl 10m`,
		Args: args,
	}
	cmd.RunE = a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
		opts, err := putOptions(cmd, ttl, ifAbsent, ifVersion)
		if err != nil {
			return err
		}
		value, err := a.value(ctx, cmd, args[2:], file)
		if err != nil {
			return err
		}
		p, err := c.Pool(ctx, args[0])
		if err != nil {
			return err
		}
		v, err := p.Put(ctx, []byte(args[1]), value, opts...)
		if err != nil {
			return aboutKey(err, args[0], args[1])
		}
		a.show(mutationJSON{keyOf([]byte(args[1])), v}, func(w io.Writer) { fmt.Fprintln(w, v) })
		return nil
	})
	cmd.PreRunE = a.local(func(_ *cobra.Command, args []string) error { // before anything is dialled
		if _, err := putOptions(cmd, ttl, ifAbsent, ifVersion); err != nil {
			return err
		}
		if err := sundog.CheckKey([]byte(args[1])); err != nil {
			return err
		}
		return oneSource(args[2:], cmd.Flags().Changed("file"))
	})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&file, "file", "f", "", "take the value from `FILE`, - for stdin")
	flags.DurationVar(&ttl, "ttl", 0, "the key disappears after this long, such as 10m")
	flags.BoolVar(&ifAbsent, "if-absent", false, "only where the key does not exist")
	flags.StringVar(&ifVersion, "if-version", "", "only where the key has this `VERSION`")
	return cmd
}

func putOptions(cmd *cobra.Command, ttl time.Duration, ifAbsent bool, ifVersion string) ([]client.PutOption, error) {
	var opts []client.PutOption
	if cmd.Flags().Changed("ttl") {
		if ttl <= 0 {
			return nil, sundog.Errorf(sundog.Invalid, "--ttl %v: use a positive one, such as 10m", ttl)
		}
		opts = append(opts, client.TTL(ttl))
	}
	if ifAbsent && ifVersion != "" {
		return nil, sundog.Errorf(sundog.Invalid, "--if-absent and --if-version exclude each other")
	}
	if ifAbsent {
		opts = append(opts, client.IfAbsent())
	}
	versioned, err := versionOption(cmd, ifVersion)
	return append(opts, versioned...), err
}

func versionOption(cmd *cobra.Command, text string) ([]client.PutOption, error) {
	if !cmd.Flags().Changed("if-version") {
		return nil, nil
	}
	v, err := sundog.ParseVersion(text)
	if err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "--if-version: %s", textOf(err))
	}
	return []client.PutOption{client.IfVersion(v)}, nil
}

func oneSource(arg []string, file bool) error {
	switch {
	case len(arg) == 0 && !file:
		return sundog.Errorf(sundog.Invalid, "no value: give VALUE, -f FILE, or - for stdin (an empty value is '')")
	case len(arg) > 0 && file:
		return sundog.Errorf(sundog.Invalid, "two values: give VALUE or -f FILE, not both")
	}
	return nil
}

// value fetches put's value from wherever the command line says. A --timeout
// bounds the reading too.
func (a *app) value(ctx context.Context, cmd *cobra.Command, arg []string, file string) ([]byte, error) {
	if len(arg) > 0 {
		if file = arg[0]; file != "-" {
			return []byte(file), nil
		}
	}
	given, err := a.given(cmd)
	if err != nil {
		return nil, err
	}
	if given > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, given)
		defer cancel()
	}
	value, err := await(ctx, func() ([]byte, error) { // opening a pipe may wait, too
		if file == "-" {
			return readValue(a.stdin, "stdin", -1)
		}
		f, err := os.Open(file)
		if err != nil {
			return nil, sundog.Errorf(sundog.Invalid, "-f: %w", err)
		}
		defer f.Close()
		size := int64(-1)
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		return readValue(f, file, size)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, sundog.Errorf(sundog.Timeout, "%s did not end within %v", stdinName(file), given)
	}
	return value, err
}

// readValue reads no more than can be a value, and a byte. size is that of a
// file, -1 for what has none.
func readValue(r io.Reader, name string, size int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(r, sundog.MaxValue+1))
	if err != nil {
		return nil, sundog.Errorf(sundog.Invalid, "read %s: %w", name, err)
	}
	if len(value) <= sundog.MaxValue {
		return value, nil
	}
	e := sundog.Errorf(sundog.TooLarge, "%s has more than %d bytes, which is the most that a value may have", name, sundog.MaxValue)
	e.Used, e.Limit = sundog.MaxValue+1, sundog.MaxValue
	if size > sundog.MaxValue {
		e.Used, e.Msg = size, fmt.Sprintf("%s has %d bytes: a value is at most %d", name, size, sundog.MaxValue)
	}
	return nil, e
}

// aboutKey names the key in errors that are about it, and the pool.
func aboutKey(err error, pool, key string) error {
	switch kind := sundog.KindOf(err); kind {
	case sundog.Exists:
		return sundog.Errorf(sundog.Exists, "key %.200q in pool %q is there already", key, pool)
	case sundog.NotFound, sundog.Conflict, sundog.Invalid, sundog.TooLarge, sundog.NoSpace, sundog.Locked:
		from := sundog.AsError(err)
		e := sundog.Errorf(kind, "key %.200q in pool %q: %s", key, pool, textOf(err))
		e.Used, e.Limit = from.Used, from.Limit
		return e
	}
	return err
}

// textOf is an error's message without its kind.
func textOf(err error) string {
	if e, ok := errors.AsType[*sundog.Error](err); ok && e.Msg != "" {
		return e.Msg
	}
	return err.Error()
}

// itemJSON is the line of get, and an element of scan's.
type itemJSON struct {
	keyJSON
	Value    *[]byte        `json:"value,omitempty"` // base64; absent with --keys-only
	Version  sundog.Version `json:"version"`
	Deadline string         `json:"deadline,omitempty"` // RFC 3339, of keys that have one
	Via      client.Via     `json:"via,omitempty"`
	Node     string         `json:"node,omitempty"`
}

func itemOf(it client.Item) itemJSON {
	v := itemJSON{keyJSON: keyOf(it.Key), Version: it.Version}
	if it.Value != nil {
		v.Value = &it.Value
	}
	if !it.Deadline.IsZero() {
		v.Deadline = it.Deadline.UTC().Format(time.RFC3339Nano)
	}
	return v
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get POOL KEY",
		Short: "Print a value, byte for byte; --json adds version, via and node",
		Args:  args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			p, err := c.Pool(ctx, args[0])
			if err != nil {
				return err
			}
			it, err := p.Get(ctx, []byte(args[1]))
			if err != nil {
				return aboutKey(err, args[0], args[1])
			}
			v := itemOf(it)
			v.Via, v.Node = it.Via, it.Node.String()
			var failed error
			a.show(v, func(w io.Writer) { _, failed = w.Write(it.Value) })
			return failed
		}),
	}
}

func (a *app) delCommand() *cobra.Command {
	var ifVersion string
	cmd := &cobra.Command{
		Use:   "del POOL KEY",
		Short: "Remove a key",
		Args:  args,
	}
	cmd.RunE = a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
		opts, err := versionOption(cmd, ifVersion)
		if err != nil {
			return err
		}
		p, err := c.Pool(ctx, args[0])
		if err != nil {
			return err
		}
		v, err := p.Delete(ctx, []byte(args[1]), opts...)
		if err != nil {
			return aboutKey(err, args[0], args[1])
		}
		a.show(mutationJSON{keyOf([]byte(args[1])), v}, func(w io.Writer) { fmt.Fprintf(w, "deleted %s\n", args[1]) })
		return nil
	})
	cmd.Flags().StringVar(&ifVersion, "if-version", "", "only where the key has this `VERSION`")
	return cmd
}

// counterJSON is the line of incr.
type counterJSON struct {
	keyJSON
	Value   int64          `json:"value"`
	Version sundog.Version `json:"version"`
}

func (a *app) incrCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "incr POOL KEY [DELTA]",
		Short: "Add to a counter, 1 unless told, and print the sum",
		Long: `Add DELTA (1 unless given; a negative one after --) to a counter and print the
sum. A counter that does not exist begins at 0. Its value is 8 bytes,
little-endian; a key with a value of another length cannot be counted.`,
		Args: args,
		RunE: a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
			delta := int64(1)
			if len(args) == 3 {
				n, err := strconv.ParseInt(args[2], 10, 64)
				if err != nil {
					return sundog.Errorf(sundog.Invalid, "DELTA %q: want a whole number from %d to %d", args[2], math.MinInt64, math.MaxInt64)
				}
				delta = n
			}
			p, err := c.Pool(ctx, args[0])
			if err != nil {
				return err
			}
			n, v, err := p.Incr(ctx, []byte(args[1]), delta)
			if err != nil {
				return aboutKey(err, args[0], args[1])
			}
			a.show(counterJSON{keyOf([]byte(args[1])), n, v}, func(w io.Writer) { fmt.Fprintln(w, n) })
			return nil
		}),
	}
}
