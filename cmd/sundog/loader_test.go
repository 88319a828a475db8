package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// shelf is a pool in memory whose puts fail as fail says.
type shelf struct {
	mu      sync.Mutex // guards kept and puts
	kept    map[string]string
	puts    map[string]int
	batches int
	fail    func(s *shelf, key string, nth int) error
}

func (s *shelf) MultiPut(ctx context.Context, pairs []client.Pair, _ ...client.PutOption) []client.PutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	out := make([]client.PutResult, len(pairs))
	for i, p := range pairs {
		key := string(p.Key)
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		s.puts[key]++
		if s.fail != nil {
			out[i].Err = s.fail(s, key, s.puts[key])
		}
		if out[i].Err == nil {
			s.kept[key] = string(p.Value)
		}
	}
	return out
}

func (s *shelf) MultiGet(ctx context.Context, keys [][]byte) []client.GetResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]client.GetResult, len(keys))
	for i, k := range keys {
		if v, ok := s.kept[string(k)]; ok {
			out[i].Item = client.Item{Key: k, Value: []byte(v)}
		} else {
			out[i].Err = sundog.Errorf(sundog.NotFound, "no such key")
		}
	}
	return out
}

func load(t *testing.T, in io.Reader, fail func(*shelf, string, int) error) (*shelf, *loader, error) {
	t.Helper()
	s := &shelf{kept: map[string]string{}, puts: map[string]int{}, fail: fail}
	l := &loader{pool: s, lanes: 4, patience: 50 * time.Millisecond, pause: time.Millisecond}
	return s, l, l.load(t.Context(), in, "f.tsv")
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key-%d\tvalue\twith tab %d\r\n", i, i)
	}
	return b.String()
}

func TestLoadKeepsEveryByte(t *testing.T) {
	text := lines(5000) + "\n" + "last\t" // an empty line, and no newline at the end
	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	_, _ = gz.Write([]byte(text))
	require.NoError(t, gz.Close())
	for _, in := range []io.Reader{strings.NewReader(text), &packed} {
		s, l, err := load(t, in, nil)
		require.NoError(t, err)
		require.Equal(t, int64(5001), l.lines)
		require.Equal(t, int64(5001), l.counts.loaded)
		require.Len(t, s.kept, 5001)
		require.Equal(t, "value\twith tab 4999\r", s.kept["key-4999"])
		require.Equal(t, "", s.kept["last"])
		require.Greater(t, s.batches, 4)
	}
}

func TestLoadLaterLineWins(t *testing.T) {
	var b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&b, "key-%d\t%d\n", i%7, i)
	}
	s, l, err := load(t, strings.NewReader(b.String()), nil)
	require.NoError(t, err)
	require.Equal(t, l.lines, l.counts.loaded+l.replaced)
	for k := range 7 {
		last := 20000 - 1
		for last%7 != k {
			last--
		}
		require.Equal(t, fmt.Sprint(last), s.kept[fmt.Sprintf("key-%d", k)])
	}
}

// What surely was not stored is put again. What may have been is read, and put
// again only where it overwrites nobody.
func TestLoadRetriesOnlyWhatIsSafe(t *testing.T) {
	lost := sundog.Errorf(sundog.Unknown, "no answer")
	s, l, err := load(t, strings.NewReader(lines(1000)), func(s *shelf, key string, nth int) error {
		switch {
		case strings.HasSuffix(key, "1") && nth < 4:
			return sundog.Errorf(sundog.Unavailable, "away")
		case strings.HasSuffix(key, "2") && nth == 1: // nothing came of it
			return lost
		case strings.HasSuffix(key, "3"):
			return sundog.Errorf(sundog.NoSpace, "full")
		case strings.HasSuffix(key, "4"): // another's value is there
			s.kept[key] = "another's"
			return lost
		case strings.HasSuffix(key, "5"): // it was stored
			s.kept[key] = fmt.Sprintf("value\twith tab %s\r", strings.TrimPrefix(key, "key-"))
			return lost
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, int64(800), l.counts.loaded)
	require.Equal(t, int64(100), l.counts.unknown)
	require.Equal(t, int64(100), l.counts.failed)
	require.Equal(t, int64(400), l.counts.retried)
	require.Equal(t, 4, s.puts["key-1"])
	require.Equal(t, 2, s.puts["key-2"])
	require.Equal(t, 1, s.puts["key-3"])
	require.Equal(t, 1, s.puts["key-4"])
	require.Equal(t, 1, s.puts["key-5"])
	require.Equal(t, "another's", s.kept["key-4"])
	require.Equal(t, "value\twith tab 2\r", s.kept["key-2"])
}

func TestLoadGivesUp(t *testing.T) {
	_, l, err := load(t, strings.NewReader(lines(20000)), func(*shelf, string, int) error {
		return sundog.Errorf(sundog.Unavailable, "away")
	})
	require.ErrorIs(t, err, sundog.Closed)
	require.ErrorIs(t, l.counts.first[0], sundog.Unavailable)
	require.Zero(t, l.counts.loaded)
	require.NotZero(t, l.counts.failed)

	_, l, _ = load(t, strings.NewReader(lines(100_000)), func(*shelf, string, int) error {
		return sundog.Errorf(sundog.NotFound, "pool was deleted")
	})
	require.ErrorIs(t, l.counts.first[0], sundog.NotFound)
	require.Less(t, l.lines, int64(100_000), "the rest is not read")
}

func TestLoadBadLines(t *testing.T) {
	long := strings.Repeat("x", 4*(sundog.MaxKey+sundog.MaxValue)+10)
	s, l, err := load(t, strings.NewReader("a\t1\nno tab\nb\t"+long+"\nc\t3\n"), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "c": "3"}, s.kept)
	require.Equal(t, int64(2), l.counts.failed)
	require.Equal(t, int64(4), l.lines)
	require.ErrorContains(t, l.counts.first[0], "f.tsv line 2: no TAB")

	// A file that breaks off keeps no half line.
	broken := errors.New("disk fell off")
	s, _, err = load(t, io.MultiReader(strings.NewReader("a\t1\nb\thalf"), failing{broken}), nil)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "line 2")
	require.Equal(t, map[string]string{"a": "1"}, s.kept)

	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	_, _ = gz.Write([]byte(lines(5000)))
	require.NoError(t, gz.Close())
	_, _, err = load(t, bytes.NewReader(packed.Bytes()[:packed.Len()/2]), nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = load(t, bytes.NewReader([]byte{0x1f, 0x8b, 0, 0}), nil)
	require.ErrorIs(t, err, sundog.Invalid)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What scan prints, load stores: any bytes at all.
func TestScanLoadRoundTrip(t *testing.T) {
	random := make([]byte, sundog.MaxValue)
	rand.NewChaCha8([32]byte{1}).Read(random)
	kept := map[string]string{
		"plain": "text", "": "", "\"": "\"quoted\"", "\"a\"": "\"", "tab\tkey": "tab\tvalue", "line\nkey": "a\nb\r\n",
		"nul\x00": "\x00", "\xff\xfe": string(random), strings.Repeat("\xff", sundog.MaxKey): strings.Repeat("\x00", sundog.MaxValue),
		"back\\slash": `\n is no newline`, "\\": "", "é\u2028": "\ufeff\u0085", "\x1f\x8b": "gzip?", " ": " ", "#": "'",
	}
	delete(kept, "")
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	require.NoError(t, writeText(w, func(yield func(client.Item, error) bool) {
		for k, v := range kept {
			if !yield(client.Item{Key: []byte(k), Value: []byte(v)}, nil) {
				return
			}
		}
	}, false))
	require.NoError(t, w.Flush())
	require.Equal(t, len(kept), bytes.Count(out.Bytes(), []byte("\n")))
	s, l, err := load(t, &out, nil)
	require.NoError(t, err)
	require.Empty(t, l.counts.first)
	require.Equal(t, int64(len(kept)), l.counts.loaded)
	require.True(t, maps.Equal(kept, s.kept))

	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		back, err := unprintable(printable(b))
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, back))
	})
}

func TestLoadQuotes(t *testing.T) {
	const text = "a\t\"said\" he\n\"b\tc\nd\t\"e\"\n"
	s, l, err := load(t, strings.NewReader(text), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"d": "e"}, s.kept)
	require.Equal(t, int64(2), l.counts.failed)
	require.ErrorContains(t, l.counts.first[0], "f.tsv line 1")
	require.ErrorContains(t, l.counts.first[1], "--raw")

	s = &shelf{kept: map[string]string{}, puts: map[string]int{}}
	l = &loader{pool: s, lanes: 4, raw: true, patience: 50 * time.Millisecond, pause: time.Millisecond}
	require.NoError(t, l.load(t.Context(), strings.NewReader(text), "f.tsv"))
	require.Equal(t, map[string]string{"a": `"said" he`, `"b`: "c", "d": `"e"`}, s.kept)
}
