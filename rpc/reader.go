package rpc

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sundog-kv/sundog"
)

// The read buffer starts small, so that ten thousand idle connections are
// cheap, and grows while reads fill it.
const (
	readBufMin = 4 << 10
	readBufMax = 64 << 10
)

// errQuiet is what a frameReader returns when nothing came between two frames
// for the time it was told to wait.
var errQuiet = errors.New("nothing received")

// frameReader cuts a stream into frames. One goroutine reads; expect may be
// called by any.
type frameReader struct {
	conn     net.Conn
	maxFrame int
	stall    time.Duration // longest wait inside a frame without a byte

	buf  []byte
	r, w int // unread bytes are buf[r:w]

	mu    sync.Mutex // guards quiet and armed, and orders SetReadDeadline calls
	quiet time.Duration
	armed time.Time // the deadline that is set on conn
}

func newFrameReader(conn net.Conn, l Limits, quiet time.Duration) *frameReader {
	return &frameReader{
		conn: conn, maxFrame: l.MaxFrame, stall: l.Stall,
		buf: make([]byte, readBufMin), quiet: quiet,
	}
}

// next returns the next header. Errors: errQuiet (the caller may go on),
// Corrupt or TooLarge (the stream is useless), or that of the connection.
func (f *frameReader) next() (header, error) {
	if err := f.fill(headerSize, false); err != nil {
		return header{}, err
	}
	h, err := parseHeader(f.buf[f.r:f.r+headerSize], f.maxFrame)
	f.r += headerSize
	return h, err
}

// trustMax is how much is allocated on a header's word alone. More is allocated
// only after that much has come, so that a peer must send to make us hold.
const trustMax = 256 << 10

// body returns the n bytes after a header in memory of their own.
func (f *frameReader) body(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, min(n, trustMax))
	got := copy(b, f.buf[f.r:f.w])
	f.r += got
	if err := f.readFull(b[got:]); err != nil {
		return nil, err
	}
	if n > len(b) {
		whole := make([]byte, n)
		got = copy(whole, b)
		b = whole
		if err := f.readFull(b[got:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// readFull fills b from the connection, past the buffer.
func (f *frameReader) readFull(b []byte) error {
	for len(b) > 0 {
		if err := f.arm(f.stall); err != nil {
			return err
		}
		k, err := f.conn.Read(b)
		b = b[k:]
		if err != nil && len(b) > 0 {
			return f.inFrame(err)
		}
	}
	return nil
}

// skip passes over n bytes without keeping them.
func (f *frameReader) skip(n int) error {
	for n > 0 {
		if f.r == f.w {
			if err := f.fill(1, true); err != nil {
				return err
			}
		}
		k := min(n, f.w-f.r)
		f.r += k
		n -= k
	}
	return nil
}

// fill reads until n bytes are buffered, n being at most readBufMin; inside says
// that a frame is begun already.
func (f *frameReader) fill(n int, inside bool) error {
	if f.w-f.r >= n {
		return nil
	}
	f.makeRoom()
	for f.w-f.r < n {
		between := !inside && f.w == f.r
		wait := f.stall
		if between {
			wait = f.patience()
		}
		if err := f.arm(wait); err != nil {
			return err
		}
		k, err := f.conn.Read(f.buf[f.w:])
		f.w += k
		switch {
		case err == nil || f.w-f.r >= n:
		case !between || k > 0:
			return f.inFrame(err)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errQuiet
		default:
			return err
		}
	}
	return nil
}

// makeRoom moves the few unread bytes to the front, into a larger buffer when
// the last read filled this one.
func (f *frameReader) makeRoom() {
	buf := f.buf
	if f.w == len(buf) && len(buf) < readBufMax {
		buf = make([]byte, 4*len(buf))
	}
	f.w = copy(buf, f.buf[f.r:f.w])
	f.r, f.buf = 0, buf
}

// rest gives memory back after a quiet spell.
func (f *frameReader) rest() {
	if f.r == f.w && len(f.buf) > readBufMin {
		f.buf, f.r, f.w = make([]byte, readBufMin), 0, 0
	}
}

func (f *frameReader) inFrame(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return sundog.Errorf(sundog.Unavailable, "half a frame, then nothing for %v: %w", f.stall, errStalled)
	}
	return err
}

// errStalled marks a connection given up because the other side made no
// progress.
var errStalled = errors.New("stalled")

func (f *frameReader) patience() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quiet
}

// has reports whether n bytes are buffered already.
func (f *frameReader) has(n int) bool { return f.w-f.r >= n }

// setQuiet sets how long the reader waits between two frames, from the next
// wait on.
func (f *frameReader) setQuiet(quiet time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = quiet
}

// expect sets how long the reader waits between two frames, at once also for
// the wait it is in.
func (f *frameReader) expect(quiet time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = quiet
	f.armed = time.Now().Add(quiet)
	_ = f.conn.SetReadDeadline(f.armed) // a closed connection says so at the read
}

// arm sees to it that the read that follows ends after d, give or take a
// quarter: setting a deadline costs more than comparing, so one that is near
// enough is left.
func (f *frameReader) arm(d time.Duration) error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := f.armed.Sub(now); left <= d && left >= d-d/4 {
		return nil
	}
	f.armed = now.Add(d)
	return f.conn.SetReadDeadline(f.armed)
}
