package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// Bounds of a load: a lane holds at most one batch on its way and one that fills.
const (
	batchPairs   = 512
	batchBytes   = 1 << 20
	loadPatience = time.Minute
	retryPause   = 200 * time.Millisecond
	firstFew     = 5 // failures that are told
)

// putter is what a loader needs of a pool.
type putter interface {
	MultiPut(ctx context.Context, pairs []client.Pair, opts ...client.PutOption) []client.PutResult
	MultiGet(ctx context.Context, keys [][]byte) []client.GetResult
}

// loader reads lines and stores them by several lanes. A key always goes by the
// same lane, and lanes send one batch at a time, so the last line of a key wins.
type loader struct {
	pool     putter
	lanes    int
	patience time.Duration // how long a lane goes on without storing anything
	pause    time.Duration // between its attempts
	raw      bool          // quotes belong to keys and values
	lines    int64         // read
	replaced int64         // of them, by a later one of their batch

	mu     sync.Mutex // guards counts
	counts struct {
		loaded, failed, unknown, bytes, retried int64
		first                                   []error // firstFew at most
	}
}

// load stores all of in; name is for messages. The error is of the reading; what
// failed to be stored is in the counts.
func (l *loader) load(ctx context.Context, in io.Reader, name string) error {
	lines, err := plain(in)
	if err != nil {
		return sundog.Errorf(sundog.Invalid, "%s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queues := make([]chan []client.Pair, l.lanes)
	filling := make([]filling, l.lanes)
	var work sync.WaitGroup
	for i := range queues {
		queues[i] = make(chan []client.Pair)
		work.Go(func() {
			for batch := range queues[i] {
				if !l.store(ctx, batch) {
					cancel() // no more can be stored: the rest fails at once
				}
			}
		})
	}
	err = l.read(ctx, lines, name, queues, filling)
	for i := range queues {
		if len(filling[i].pairs) > 0 {
			queues[i] <- filling[i].pairs
		}
		close(queues[i])
	}
	work.Wait()
	return err
}

// filling is the batch a lane's lines gather in.
type filling struct {
	pairs []client.Pair
	at    map[string]int // where in pairs a key is
	bytes int
}

// add takes a pair in and says whether it replaced one.
func (f *filling) add(p client.Pair) bool {
	if f.at == nil {
		f.at = make(map[string]int, batchPairs)
	}
	if i, ok := f.at[string(p.Key)]; ok {
		f.bytes += len(p.Value) - len(f.pairs[i].Value)
		f.pairs[i] = p
		return true
	}
	f.at[string(p.Key)] = len(f.pairs)
	f.pairs = append(f.pairs, p)
	f.bytes += len(p.Key) + len(p.Value)
	return false
}

// read cuts the input into lines and hands full batches to their lanes.
func (l *loader) read(ctx context.Context, in *bufio.Reader, name string, queues []chan []client.Pair, batches []filling) error {
	for ctx.Err() == nil {
		line, err := readLine(in)
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		l.lines++
		switch {
		case errors.Is(err, errLongLine):
			e := sundog.Errorf(sundog.TooLarge, "%s line %d: longer than a key of %d and a value of %d bytes, both quoted", name, l.lines, sundog.MaxKey, sundog.MaxValue)
			e.Used, e.Limit = int64(mostLine+1), int64(mostLine)
			l.refuse(e)
			continue
		case err != nil && ctx.Err() != nil:
			l.lines-- // not read
			continue
		case err != nil && err != io.EOF: // what came of the line is not all of it
			l.lines--
			if sundog.KindOf(err) == sundog.Timeout {
				return sundog.Errorf(sundog.Timeout, "%s: stopped after line %d: %s", name, l.lines, textOf(err))
			}
			return sundog.Errorf(sundog.Invalid, "read %s, line %d: %w", name, l.lines+1, err)
		case len(line) == 0:
			l.lines-- // an empty line is nothing
			continue
		}
		pair, err := l.pair(line)
		if err != nil {
			e := sundog.AsError(err)
			e.Msg = fmt.Sprintf("%s line %d: %s", name, l.lines, e.Msg)
			l.refuse(e)
			continue
		}
		lane := int(sundog.SlotOf(pair.Key)) % len(queues)
		f := &batches[lane]
		if f.add(pair) {
			l.replaced++
		}
		if len(f.pairs) >= batchPairs || f.bytes >= batchBytes {
			queues[lane] <- f.pairs
			*f = filling{}
		}
	}
	return sundog.Errorf(sundog.Closed, "%s: stopped after line %d: %w", name, l.lines, ctx.Err())
}

// pair takes a line apart.
func (l *loader) pair(line []byte) (p client.Pair, err error) {
	key, value, ok := bytes.Cut(line, []byte{'\t'})
	if !ok {
		return p, sundog.Errorf(sundog.Invalid, "no TAB between key and value")
	}
	if !l.raw {
		if key, err = unprintable(key); err == nil {
			value, err = unprintable(value)
		}
		if err != nil {
			return p, sundog.Errorf(sundog.Invalid, "a key or value that begins with \" and is not quoted as scan does it; --raw takes quotes as they are")
		}
	}
	if err := sundog.CheckKey(key); err != nil {
		return p, err
	}
	if len(value) > sundog.MaxValue {
		e := sundog.Errorf(sundog.TooLarge, "value of %d bytes: a value is at most %d", len(value), sundog.MaxValue)
		e.Used, e.Limit = int64(len(value)), sundog.MaxValue
		return p, e
	}
	return client.Pair{Key: key, Value: value}, nil
}

// mostLine is the longest line: a key and a value of which every byte is quoted
// as \xff.
const mostLine = 4*(sundog.MaxKey+sundog.MaxValue) + len("\"\"\t\"\"")

var errLongLine = errors.New("line too long")

// readLine returns a line of its own without its end. A line that is too long is
// skipped to its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for long := false; ; {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > mostLine+2; !long {
			line = append(line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case long:
			return []byte{0}, errLongLine
		case err != nil && (err != io.EOF || len(line) == 0):
			return line, err
		}
		return bytes.TrimSuffix(line, []byte{'\n'}), err
	}
}

// plain unpacks gzip where the first bytes say so.
func plain(in io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	if magic, _ := b.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	unpacked, err := gzip.NewReader(b)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(unpacked, 64<<10), nil
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *loader) count(p client.Pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.loaded++
	l.counts.bytes += int64(len(p.Key) + len(p.Value))
}

func (l *loader) retry(pairs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.retried += int64(pairs)
}

func (l *loader) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, sundog.Unknown) {
		l.counts.unknown++
	} else {
		l.counts.failed++
	}
	if len(l.counts.first) < firstFew {
		l.counts.first = append(l.counts.first, err)
	}
}
