package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

func (a *app) scanCommand() *cobra.Command {
	var o client.ScanOptions
	var prefix string
	cmd := &cobra.Command{
		Use:   "scan POOL",
		Short: "List keys and values, in no order",
		Long: `List keys and values, one a line: key TAB value, in the form that load takes.
A key or value that begins with ", or has a TAB, a newline, another control
character or bytes that are not UTF-8, is quoted as in Go and C: "a\tb\xff". load
takes the quotes off again, so what scan prints can be loaded as it is.
--json prints one line, {"items":[{"key","value","version"},...],"count":N}.
--timeout is for each page.`,
		Args: args,
	}
	cmd.RunE = a.withClient(dataTimeout, func(ctx context.Context, c *client.Client, args []string) error {
		if o.Limit < 0 {
			return sundog.Errorf(sundog.Invalid, "--limit %d: use 0 (all) or more", o.Limit)
		}
		p, err := c.Pool(ctx, args[0])
		if err != nil {
			return err
		}
		o.Prefix = []byte(prefix)
		out := bufio.NewWriterSize(a.stdout, 64<<10)
		write := writeText
		if a.json {
			a.wrote.Store(true) // from here on an error is part of the line
			write = writeJSON
		}
		err = write(out, p.Scan(ctx, o), o.KeysOnly)
		if flushed := out.Flush(); err == nil {
			err = flushed
		}
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&prefix, "prefix", "", "only keys that begin with this")
	flags.BoolVar(&o.KeysOnly, "keys-only", false, "leave the values out")
	flags.IntVar(&o.Limit, "limit", 0, "at most so many; 0 is all")
	return cmd
}

// items is what a scan yields.
type items = func(yield func(client.Item, error) bool)

func writeText(w *bufio.Writer, all items, keysOnly bool) error {
	for it, err := range all {
		if err != nil {
			return err
		}
		_, _ = w.Write(printable(it.Key))
		if !keysOnly {
			_ = w.WriteByte('\t')
			_, _ = w.Write(printable(it.Value))
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON prints one line whatever happens; an error ends it.
func writeJSON(w *bufio.Writer, all items, _ bool) error {
	count := 0
	var failed error
	_, _ = w.WriteString(`{"items":[`)
	for it, err := range all {
		if err != nil {
			failed = err
			break
		}
		if count > 0 {
			_ = w.WriteByte(',')
		}
		count++
		if failed = writeElement(w, itemOf(it)); failed != nil {
			break
		}
	}
	_, _ = w.WriteString(`],"count":` + strconv.Itoa(count))
	if failed != nil {
		_, _ = w.WriteString(`,"error":`)
		_ = writeElement(w, errorOf(failed))
	}
	_, err := w.WriteString("}\n")
	if failed == nil {
		failed = err
	}
	return failed
}

func writeElement(w io.Writer, v any) error {
	_, err := w.Write(bytes.TrimRight(encoded(v), "\n"))
	return err
}

// printable is b itself where it is text that fits in a field, else quoted.
// [unprintable] is its inverse.
func printable(b []byte) []byte {
	plain := utf8.Valid(b) && !bytes.HasPrefix(b, []byte{'"'}) &&
		!bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r == 0x7f })
	if plain {
		return b
	}
	return strconv.AppendQuote(nil, string(b))
}

// unprintable is the bytes of a field that printable made. The error is of a
// field that begins with a quote and is not a quoted one.
func unprintable(field []byte) ([]byte, error) {
	if !bytes.HasPrefix(field, []byte{'"'}) {
		return field, nil
	}
	text, err := strconv.Unquote(string(field))
	return []byte(text), err
}
