package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	s, _, err := load(t, strings.NewReader(b.String()), nil)
	require.NoError(t, err)
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
	require.ErrorIs(t, l.counts.first, sundog.Unavailable)
	require.Zero(t, l.counts.loaded)
	require.NotZero(t, l.counts.failed)

	_, l, _ = load(t, strings.NewReader(lines(100_000)), func(*shelf, string, int) error {
		return sundog.Errorf(sundog.NotFound, "pool was deleted")
	})
	require.ErrorIs(t, l.counts.first, sundog.NotFound)
	require.Less(t, l.lines, int64(100_000), "the rest is not read")
}

func TestLoadBadLines(t *testing.T) {
	long := strings.Repeat("x", sundog.MaxKey+sundog.MaxValue+10)
	s, l, err := load(t, strings.NewReader("a\t1\nno tab\nb\t"+long+"\nc\t3\n"), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "c": "3"}, s.kept)
	require.Equal(t, int64(2), l.counts.failed)
	require.Equal(t, int64(4), l.lines)
	require.ErrorContains(t, l.counts.first, "f.tsv line 2: no TAB")

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
