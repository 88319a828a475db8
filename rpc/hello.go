package rpc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"io"
	"math"

	"github.com/sundog-kv/sundog"
)

// magic begins every handshake message. Its first byte is neither a letter (HTTP
// and other text), nor 0x16 (TLS), nor a length that a frame may have.
const magic = "\x8eSUNDOG\n"

// maxHello is the largest handshake message, magic and length included.
const maxHello = 4 << 10

// helloHead is the size of magic and length.
const helloHead = len(magic) + 2

// nonceSize is the size of the random number each side adds to the transcript.
const nonceSize = 32

// Longest names in a hello, in bytes.
const (
	maxProtocol = 64
	maxCluster  = 64
)

// Types of handshake messages, in the order in which they are sent.
const (
	helloType   = 1 // dialler: who I am, what I want
	answerType  = 2 // server: who I am; go on, prove yourself, or refused
	proofType   = 3 // dialler: my proof
	verdictType = 4 // server: its proof, or refused
)

// Roles.
const (
	roleClient = 1
	roleNode   = 2
)

// Statuses of an answer and of a verdict.
const (
	statusOK      = 0 // admitted: frames follow
	statusProve   = 1 // answers only
	statusRefused = 2 // an encoded error follows; then the connection ends
)

// hello is what the dialler says first.
type hello struct {
	minVersion, maxVersion uint8
	features               uint64
	role                   uint8
	nonce                  [nonceSize]byte
	identity               Identity
	expect                 sundog.NodeID // node wanted, 0 any
	protocol               string        // "" frames, else the protocol to upgrade to
}

// answer is what the server says to a hello.
type answer struct {
	status   uint8
	version  uint8
	features uint64
	nonce    [nonceSize]byte
	identity Identity
	refusal  *sundog.Error
}

// verdict is what the server says to a proof.
type verdict struct {
	status  uint8
	proof   []byte
	refusal *sundog.Error
}

// seal puts magic and length before a payload.
func seal(payload []byte) []byte {
	b := make([]byte, 0, helloHead+len(payload))
	b = append(b, magic...)
	b = le.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}

func appendIdentity(b []byte, id *Identity) []byte {
	b = le.AppendUint64(b, uint64(id.Node))
	b = le.AppendUint64(b, id.Boot)
	b = le.AppendUint64(b, id.Nonce)
	return appendName(b, id.Cluster)
}

func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint8)]
	return append(append(b, byte(len(s))), s...)
}

func (c *cursor) identity() Identity {
	return Identity{Node: sundog.NodeID(c.u64()), Boot: c.u64(), Nonce: c.u64(), Cluster: c.name(maxCluster)}
}

// name takes a u8 length and printable text without blanks.
func (c *cursor) name(longest int) string {
	b := c.take(int(c.u8()))
	if len(b) > longest || bytes.ContainsFunc(b, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.fail("a name that is too long or not printable")
		return ""
	}
	return string(b)
}

func (c *cursor) nonce() (n [nonceSize]byte) {
	copy(n[:], c.take(nonceSize))
	return n
}

func (c *cursor) kind(want uint8) {
	if got := c.u8(); c.err == nil && got != want {
		c.fail("another handshake message was due")
	}
}

// encode and the decoders below give and take the payload; a decoder passes
// over bytes after its end, which a newer release may add.

func (h *hello) encode() []byte {
	b := append(make([]byte, 0, 256), helloType, h.minVersion, h.maxVersion)
	b = le.AppendUint64(b, h.features)
	b = append(b, h.role)
	b = append(b, h.nonce[:]...)
	b = appendIdentity(b, &h.identity)
	b = le.AppendUint64(b, uint64(h.expect))
	return appendName(b, h.protocol)
}

func decodeHello(b []byte) (hello, error) {
	c := cursor{b: b}
	c.kind(helloType)
	h := hello{
		minVersion: c.u8(), maxVersion: c.u8(), features: c.u64(), role: c.u8(), nonce: c.nonce(),
		identity: c.identity(), expect: sundog.NodeID(c.u64()), protocol: c.name(maxProtocol),
	}
	switch {
	case c.err != nil:
		return hello{}, c.err
	case h.role != roleClient && h.role != roleNode:
		return hello{}, sundog.Errorf(sundog.Corrupt, "malformed message: unknown role %d", h.role)
	case h.role == roleNode && h.identity.Node == 0:
		return hello{}, sundog.Errorf(sundog.Corrupt, "malformed message: a node without an id")
	case h.minVersion > h.maxVersion || h.maxVersion == 0:
		return hello{}, sundog.Errorf(sundog.Corrupt, "malformed message: versions %d to %d", h.minVersion, h.maxVersion)
	}
	return h, nil
}

func (a *answer) encode() []byte {
	b := append(make([]byte, 0, 256), answerType, a.status, a.version)
	b = le.AppendUint64(b, a.features)
	b = append(b, a.nonce[:]...)
	b = appendIdentity(b, &a.identity)
	if a.status == statusRefused {
		b = AppendError(b, a.refusal)
	}
	return b
}

func decodeAnswer(b []byte) (answer, error) {
	c := cursor{b: b}
	c.kind(answerType)
	a := answer{status: c.u8(), version: c.u8(), features: c.u64(), nonce: c.nonce(), identity: c.identity()}
	if a.status == statusRefused {
		a.refusal = c.remoteError()
	} else if a.status > statusRefused {
		c.fail("unknown status of an answer")
	}
	if c.err != nil {
		return answer{}, c.err
	}
	return a, nil
}

func encodeProof(mac []byte) []byte { return append([]byte{proofType}, mac...) }

func decodeProof(b []byte) ([]byte, error) {
	c := cursor{b: b}
	c.kind(proofType)
	mac := c.take(sha256.Size)
	if c.err != nil {
		return nil, c.err
	}
	return mac, nil
}

func (v *verdict) encode() []byte {
	b := []byte{verdictType, v.status}
	if v.status == statusRefused {
		return AppendError(b, v.refusal)
	}
	return append(b, v.proof...)
}

func decodeVerdict(b []byte) (verdict, error) {
	c := cursor{b: b}
	c.kind(verdictType)
	v := verdict{status: c.u8()}
	switch v.status {
	case statusOK:
		v.proof = c.take(sha256.Size)
	case statusRefused:
		v.refusal = c.remoteError()
	default:
		c.fail("unknown status of a verdict")
	}
	if c.err != nil {
		return verdict{}, c.err
	}
	return v, nil
}

// readHello reads one handshake message from r, not a byte more, and returns it
// whole and its payload. A wrong first byte ends it at once, however little has
// come: errMagic.
func readHello(r io.Reader) (whole, payload []byte, err error) {
	head := make([]byte, helloHead)
	for n := 0; n < helloHead; {
		k, err := r.Read(head[n:])
		n += k
		if seen := min(n, len(magic)); string(head[:seen]) != magic[:seen] {
			return nil, nil, errMagic
		}
		if err != nil && n < helloHead {
			return nil, nil, err
		}
	}
	size := int(le.Uint16(head[len(magic):]))
	if helloHead+size > maxHello {
		return nil, nil, tooLarge("handshake message", int64(helloHead+size), maxHello)
	}
	whole = make([]byte, helloHead+size)
	copy(whole, head)
	payload = whole[helloHead:]
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, nil, err
	}
	return whole, payload, nil
}

// errMagic is what readHello returns for a stream of another protocol.
var errMagic = sundog.Errorf(sundog.Corrupt, "the other side does not speak this protocol")

// Labels keep the two proofs apart, so that neither can be handed back as the
// other.
const (
	labelDialler = "sundog rpc 1 dialler\x00"
	labelServer  = "sundog rpc 1 server\x00"
)

// prove is HMAC-SHA256 of the secret over a label and the transcript: the whole
// hello and the whole answer, which delimit themselves and hold both nonces,
// both identities, the node wanted, the versions, features and the protocol.
func prove(secret []byte, label string, hello, answer []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(label)) // a hash never fails to write
	mac.Write(hello)
	mac.Write(answer)
	return mac.Sum(nil)
}

// minSecret is the shortest cluster secret in bytes.
const minSecret = 16

// CheckSecret says why a cluster secret is too weak (kind [sundog.Invalid]): it
// must be at least 16 bytes, and should be random: whoever can make a node dial
// him can try guesses of it at leisure.
func CheckSecret(secret []byte) error {
	if len(secret) < minSecret {
		return sundog.Errorf(sundog.Invalid, "secret of %d bytes: use at least %d random bytes", len(secret), minSecret)
	}
	return nil
}
