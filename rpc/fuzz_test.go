package rpc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// reencodes checks what a decoder accepts: encoded again it gives a message that
// decodes to the same, byte for byte where the layout has one form only.
func reencodes[T any](t *testing.T, b []byte, decode func([]byte) (T, error), encode func(T) Body) {
	v, err := decode(b)
	if err != nil {
		require.ErrorIs(t, err, sundog.Corrupt)
		return
	}
	again := encode(v).Bytes()
	w, err := decode(again)
	require.NoError(t, err)
	require.Equal(t, v, w)
	require.LessOrEqual(t, len(again), len(b), "a decoder made up bytes")
}

func seed(f *testing.F, names ...string) {
	for _, name := range names {
		f.Add(hotCases()[name].body.Bytes())
	}
}

func FuzzMutate(f *testing.F) {
	seed(f, "mutate")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeMutate, EncodeMutate) })
}

func FuzzOp(f *testing.F) {
	f.Add(AppendOp(nil, &Op{Code: OpPut, Pool: 1, Key: []byte("k"), Value: []byte("v"), TTL: time.Hour}))
	f.Fuzz(func(t *testing.T, b []byte) {
		op, rest, err := DecodeOp(b)
		if err != nil {
			require.ErrorIs(t, err, sundog.Corrupt)
			return
		}
		require.Equal(t, b[:len(b)-len(rest)], AppendOp(nil, &op), "an op has one form only")
	})
}

func FuzzResults(f *testing.F) {
	seed(f, "results")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeResults, EncodeResults) })
}

func FuzzGet(f *testing.F) {
	seed(f, "get")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeGet, EncodeGet) })
}

func FuzzItem(f *testing.F) {
	seed(f, "item")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeItem, EncodeItem) })
}

func FuzzMultiGet(f *testing.F) {
	seed(f, "multiget")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeMultiGet, EncodeMultiGet) })
}

func FuzzGetResults(f *testing.F) {
	seed(f, "getresults")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeGetResults, EncodeGetResults) })
}

func FuzzScan(f *testing.F) {
	seed(f, "scan")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeScan, EncodeScan) })
}

func FuzzScanReply(f *testing.F) {
	seed(f, "scanreply")
	f.Fuzz(func(t *testing.T, b []byte) { reencodes(t, b, DecodeScanReply, EncodeScanReply) })
}

func FuzzError(f *testing.F) {
	f.Add(AppendError(nil, sundog.Errorf(sundog.Stale, "old map")))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := DecodeError(b)
		if err != nil {
			require.ErrorIs(t, err, sundog.Corrupt)
			return
		}
		require.LessOrEqual(t, len(rest), len(b)-minErrorSize)
		again, _, err := DecodeError(AppendError(nil, e))
		require.NoError(t, err)
		require.Equal(t, e.Kind, again.Kind)
		require.Equal(t, e.Leader, again.Leader)
	})
}

// byteConn is a connection whose other side sends b in pieces and is gone.
type byteConn struct {
	net.Conn
	b     []byte
	piece int
}

func (c *byteConn) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.piece)], c.b)
	c.b = c.b[n:]
	return n, nil
}
func (c *byteConn) SetReadDeadline(time.Time) error { return nil }

// FuzzFrames gives a stream to the frame reader in pieces of any size: it must
// return exactly the frames that are in it, then an error, and hold no more
// memory than the stream justifies.
func FuzzFrames(f *testing.F) {
	h := header{method: MethodGet, id: 7, epoch: 3, budget: 5000}
	one := append(h.append(nil, 5), "hello"...)
	f.Add(append(bytes.Clone(one), one...), uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		limits := Limits{MaxFrame: 1 << 20}.WithDefaults()
		r := newFrameReader(&byteConn{b: bytes.Clone(b), piece: int(piece) + 1}, limits, time.Hour)
		for rest := b; ; {
			h, err := r.next()
			if err != nil {
				kind := sundog.KindOf(err)
				require.True(t, errors.Is(err, io.EOF) || kind == sundog.Corrupt || kind == sundog.TooLarge, "%v", err)
				return
			}
			require.Equal(t, rest[:headerSize], h.append(nil, h.body()), "a header has one form only")
			rest = rest[headerSize:]
			if h.id%2 == 0 {
				err = r.skip(h.body())
			} else {
				var body []byte
				if body, err = r.body(h.body()); err == nil {
					require.True(t, bytes.Equal(rest[:h.body()], body))
				}
			}
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				require.Less(t, len(rest), h.body())
				return
			}
			rest = rest[h.body():]
		}
	})
}

// FuzzHello gives any stream to each reader of the handshake.
func FuzzHello(f *testing.F) {
	h := hello{minVersion: 1, maxVersion: 1, role: roleNode, identity: *nodeIdentity(1), protocol: "raft/bulk"}
	a := answer{status: statusRefused, version: 1, refusal: sundog.Errorf(sundog.Denied, "no")}
	v := verdict{status: statusOK, proof: make([]byte, 32)}
	for _, payload := range [][]byte{h.encode(), a.encode(), v.encode(), encodeProof(make([]byte, 32))} {
		f.Add(seal(payload))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, payload, err := readHello(&byteConn{b: bytes.Clone(b), piece: 3})
		if err != nil {
			return
		}
		require.True(t, bytes.HasPrefix(b, whole), "read more or less than the message")
		if h, err := decodeHello(payload); err == nil {
			again, err := decodeHello(h.encode())
			require.NoError(t, err)
			require.Equal(t, h, again)
		}
		if a, err := decodeAnswer(payload); err == nil && a.refusal == nil {
			again, err := decodeAnswer(a.encode())
			require.NoError(t, err)
			require.Equal(t, a, again)
		}
		if v, err := decodeVerdict(payload); err == nil && v.refusal == nil {
			again, err := decodeVerdict(v.encode())
			require.NoError(t, err)
			require.Equal(t, v, again)
		}
		_, _ = decodeProof(payload)
	})
}
