package membership

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/sundog-kv/sundog"
)

// Limits of the metadata. Together with the fixed fields at their largest they
// stay below MaxMeta, so no epoch, boot or number of pools ever outgrows it.
const (
	MaxMeta    = 512       // bytes, memberlist's limit
	MaxAddress = 160       // bytes of Listen and of HTTP
	MaxZone    = 64        // bytes of the zone label
	MaxExpect  = 1<<16 - 1 // the largest --bootstrap-expect
)

// metaVersion is the first byte. Later fields are appended behind the known
// ones and skipped by older nodes; a new version is for what they must not skip.
const metaVersion = 1

// maxFixed is the largest encoding without the three strings: version, node id,
// boot, epoch, protocol, expect, cluster id with its length, three lengths.
const maxFixed = 1 + 8 + binary.MaxVarintLen64 + binary.MaxVarintLen64 + binary.MaxVarintLen16 + binary.MaxVarintLen16 + 1 + 16 + 3

// Meta is what a node tells all others about itself.
type Meta struct {
	Node     sundog.NodeID
	Boot     uint64       // the data directory's boot counter
	Epoch    sundog.Epoch // of the newest cluster map it has
	Protocol uint16       // the highest protocol version it speaks
	Expect   int          // its --bootstrap-expect, 0 when started without
	Cluster  string       // its cluster id (32 hexadecimal digits), "" for none
	Listen   string       // host:port of data and control; ":port" means the gossip host
	HTTP     string       // host:port of the admin pages; likewise; "" for none
	Zone     string       // failure domain, "" for none
}

// Check says why the metadata cannot be sent, whatever its epoch and boot grow
// to: TooLarge with both sizes for a label or address that is too long, Invalid
// for the rest.
func (m Meta) Check() error {
	if m.Node == 0 {
		return sundog.Errorf(sundog.Invalid, "gossip metadata: no node id")
	}
	if m.Expect < 0 || m.Expect > MaxExpect {
		return sundog.Errorf(sundog.Invalid, "bootstrap-expect %d: use 0 to %d", m.Expect, MaxExpect)
	}
	if m.Cluster != "" {
		if raw, err := hex.DecodeString(m.Cluster); err != nil || len(raw) != 16 || hex.EncodeToString(raw) != m.Cluster {
			return sundog.Errorf(sundog.Invalid, "cluster id %.64q: want 32 lower-case hexadecimal digits", m.Cluster)
		}
	}
	if err := checkText("zone label", m.Zone, MaxZone); err != nil {
		return err
	}
	if err := checkAddress("listen address", m.Listen); err != nil {
		return err
	}
	if m.HTTP != "" {
		return checkAddress("HTTP address", m.HTTP)
	}
	return nil
}

func checkAddress(what, addr string) error {
	if err := checkText(what, addr, MaxAddress); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return sundog.Errorf(sundog.Invalid, "%s %q: want host:port", what, addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return sundog.Errorf(sundog.Invalid, "%s %q: want a port from 1 to 65535", what, addr)
	}
	return nil
}

func checkText(what, s string, limit int) error {
	if len(s) > limit {
		e := sundog.Errorf(sundog.TooLarge, "%s of %d bytes (%.32q...): gossip carries at most %d bytes of it, and %d bytes of metadata in all; use a shorter one",
			what, len(s), s, limit, MaxMeta)
		e.Used, e.Limit = int64(len(s)), int64(limit)
		return e
	}
	if !utf8.ValidString(s) {
		return sundog.Errorf(sundog.Invalid, "%s %q: not valid UTF-8", what, s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return sundog.Errorf(sundog.Invalid, "%s %q: %q is not a printable character", what, s, r)
		}
	}
	return nil
}

// Append appends the encoding of m, which must pass [Meta.Check]:
//
//	u8 version = 1, u64 node id (little-endian), uvarint boot, uvarint epoch,
//	uvarint protocol, uvarint expect, u8 0 or 16 and that many bytes of cluster
//	id, then three times u8 length and bytes: listen, HTTP, zone.
func (m Meta) Append(b []byte) []byte {
	b = append(b, metaVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Node))
	b = binary.AppendUvarint(b, m.Boot)
	b = binary.AppendUvarint(b, uint64(m.Epoch))
	b = binary.AppendUvarint(b, uint64(m.Protocol))
	b = binary.AppendUvarint(b, uint64(m.Expect))
	b = append(b, byte(len(m.Cluster)/2))
	b, _ = hex.AppendDecode(b, []byte(m.Cluster)) // Check saw that it is hexadecimal
	for _, s := range []string{m.Listen, m.HTTP, m.Zone} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// DecodeMeta reads what [Meta.Append] wrote. What follows the known fields is
// skipped. Corrupt for anything that Check would not let out.
func DecodeMeta(b []byte) (Meta, error) {
	d := metaReader{rest: b}
	if len(b) > MaxMeta {
		return Meta{}, sundog.Errorf(sundog.Corrupt, "gossip metadata of %d bytes: the limit is %d", len(b), MaxMeta)
	}
	if v := d.bytes(1); d.failed || v[0] != metaVersion {
		return Meta{}, sundog.Errorf(sundog.Corrupt, "gossip metadata: not of version %d", metaVersion)
	}
	var m Meta
	if raw := d.bytes(8); !d.failed {
		m.Node = sundog.NodeID(binary.LittleEndian.Uint64(raw))
	}
	m.Boot = d.uvarint(1<<64 - 1)
	m.Epoch = sundog.Epoch(d.uvarint(1<<64 - 1))
	m.Protocol = uint16(d.uvarint(1<<16 - 1))
	m.Expect = int(d.uvarint(MaxExpect))
	m.Cluster = hex.EncodeToString([]byte(d.string()))
	m.Listen, m.HTTP, m.Zone = d.string(), d.string(), d.string()
	if d.failed {
		return Meta{}, sundog.Errorf(sundog.Corrupt, "gossip metadata of %d bytes is cut short or malformed", len(b))
	}
	if err := m.Check(); err != nil {
		return Meta{}, sundog.Errorf(sundog.Corrupt, "gossip metadata: %w", err)
	}
	return m, nil
}

// metaReader takes fields off the front; after the first failure it yields zeros.
type metaReader struct {
	rest   []byte
	failed bool
}

func (d *metaReader) bytes(n int) []byte {
	if d.failed || len(d.rest) < n {
		d.failed = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *metaReader) uvarint(most uint64) uint64 {
	if d.failed {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > most {
		d.failed = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *metaReader) string() string {
	n := d.bytes(1)
	if d.failed {
		return ""
	}
	return string(d.bytes(int(n[0])))
}

// withHost completes ":port" with the gossip address's host.
func withHost(addr, gossip string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" {
		return addr
	}
	if host, _, err = net.SplitHostPort(gossip); err != nil {
		return addr
	}
	return net.JoinHostPort(host, port)
}
