package ring

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring/ringpb"
)

var corpus = flag.Bool("corpus", false, "rewrite the committed fuzz corpus")

const cluster = "00112233445566778899aabbccddeeff"

// sampleMap is a valid map that uses every field.
func sampleMap(t testing.TB) *Map {
	nodes := shapeNodes(5, 2, 2)
	for i := range nodes {
		nodes[i].Listen, nodes[i].Gossip, nodes[i].HTTP = "10.0.0.1:7400", "[::1]:7401", "host:7402"
		nodes[i].Boot, nodes[i].Catalog = uint64(i+1), CatalogRole(i%3)
	}
	placement, err := Bootstrap(nodes, 8, 3)
	require.NoError(t, err)
	spec := sundog.PoolSpec{Consistency: sundog.Strong, Quota: 1 << 30}.WithDefaults()
	return &Map{
		Cluster: cluster, Epoch: 42, Partitions: 8, Replicas: 3, Timings: sundog.DefaultTimings(), Nodes: nodes,
		Pools:    []Pool{{ID: 1, Name: "a", Spec: spec, Created: 7}, {ID: 4, Name: "b.c-d", Spec: spec, Created: 42}},
		NextPool: 6, Placement: placement, Birth: 7, Founders: []sundog.NodeID{nodes[2].ID, nodes[0].ID, 99},
	}
}

func youngMap() *Map {
	return &Map{Cluster: cluster, Partitions: 32, Timings: sundog.DefaultTimings(), NextPool: 1}
}

func TestMapRoundTrip(t *testing.T) {
	for name, m := range map[string]*Map{"full": sampleMap(t), "young": youngMap()} {
		t.Run(name, func(t *testing.T) {
			b, err := m.Marshal()
			require.NoError(t, err)
			got, err := UnmarshalMap(b)
			require.NoError(t, err)
			require.Equal(t, m, got)
			again, err := got.Marshal()
			require.NoError(t, err)
			require.Equal(t, b, again)
			require.Equal(t, m, m.Clone())
		})
	}
}

func TestCloneSharesNothing(t *testing.T) {
	m := sampleMap(t)
	c := m.Clone()
	c.Placement[0][0].Incarnation++
	c.Nodes[0].Boot++
	c.Pools[0].Name = "x"
	c.Founders[0]++
	require.Equal(t, sampleMap(t), m)
}

func TestEveryFlippedBitIsCorrupt(t *testing.T) {
	b, err := sampleMap(t).Marshal()
	require.NoError(t, err)
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		_, err := UnmarshalMap(b)
		require.ErrorIs(t, err, sundog.Corrupt, "bit %d", bit)
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range b {
		_, err := UnmarshalMap(b[:n])
		require.ErrorIs(t, err, sundog.Corrupt, "first %d bytes", n)
	}
}

// TestInvalidMaps breaks one rule at a time: such a map is neither written nor,
// with its checksum right, read.
func TestInvalidMaps(t *testing.T) {
	long := string(make([]byte, maxString+1))
	for name, spoil := range map[string]func(m *Map){
		"cluster id":            func(m *Map) { m.Cluster = "A" + m.Cluster[1:] },
		"no cluster id":         func(m *Map) { m.Cluster = "" },
		"partitions":            func(m *Map) { m.Partitions = 12 },
		"too many replicas":     func(m *Map) { m.Replicas = 10 },
		"no replicas":           func(m *Map) { m.Replicas = 0 },
		"no heartbeat":          func(m *Map) { m.Timings.Heartbeat = 0 },
		"lease over heartbeat":  func(m *Map) { m.Timings.Lease = 2 * time.Second },
		"node order":            func(m *Map) { m.Nodes[0], m.Nodes[1] = m.Nodes[1], m.Nodes[0] },
		"node twice":            func(m *Map) { m.Nodes[1].ID = m.Nodes[0].ID },
		"node zero":             func(m *Map) { m.Nodes[0].ID = 0 },
		"weight zero":           func(m *Map) { m.Nodes[0].Weight = 0 },
		"weight":                func(m *Map) { m.Nodes[0].Weight = MaxWeight + 1 },
		"long address":          func(m *Map) { m.Nodes[0].Listen = long },
		"long zone":             func(m *Map) { m.Nodes[0].Zone = long },
		"catalog role":          func(m *Map) { m.Nodes[0].Catalog = 3 },
		"founder twice":         func(m *Map) { m.Founders[1] = m.Founders[0] },
		"founder zero":          func(m *Map) { m.Founders[1] = 0 },
		"pool order":            func(m *Map) { m.Pools[0].ID = 5 },
		"pool zero":             func(m *Map) { m.Pools[0].ID = 0 },
		"pool id not given yet": func(m *Map) { m.NextPool = 4 },
		"pool name":             func(m *Map) { m.Pools[0].Name = "a b" },
		"pool name twice":       func(m *Map) { m.Pools[0].Name = m.Pools[1].Name },
		"pool spec":             func(m *Map) { m.Pools[0].Spec.Replicas = 0 },
		"pool of the future":    func(m *Map) { m.Pools[0].Created = 43 },
		"placement short":       func(m *Map) { m.Placement = m.Placement[1:] },
		"unborn placement":      func(m *Map) { m.Birth = 0 },
		"birth in the future":   func(m *Map) { m.Birth = 43 },
		"born without placement": func(m *Map) {
			m.Placement = nil
		},
		"no replica":     func(m *Map) { m.Placement[3] = nil },
		"replica twice":  func(m *Map) { m.Placement[3][1].Node = m.Placement[3][0].Node },
		"no incarnation": func(m *Map) { m.Placement[3][1].Incarnation = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			m := sampleMap(t)
			spoil(m)
			_, err := m.Marshal()
			require.ErrorIs(t, err, sundog.Invalid)
			_, err = UnmarshalMap(marshalUnchecked(t, m))
			require.ErrorIs(t, err, sundog.Corrupt)
		})
	}
	m := sampleMap(t)
	m.Placement[3][1].Node = 77
	_, err := m.Marshal()
	require.ErrorIs(t, err, sundog.Invalid, "placed on a node that is not there")
}

// marshalUnchecked writes a map that Validate refuses.
func marshalUnchecked(t *testing.T, m *Map) []byte {
	body, err := proto.Marshal(m.toProto())
	require.NoError(t, err)
	return seal(body)
}

func seal(body []byte) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(mapMagic), xxhash.Sum64(body))
	return append(b, body...)
}

func TestPlacementOnNoNodeIsCorrupt(t *testing.T) {
	b, err := sampleMap(t).Marshal()
	require.NoError(t, err)
	for name, spoil := range map[string]func(r *ringpb.Replicas){
		"index":  func(r *ringpb.Replicas) { r.Node[0] = 5 },
		"large":  func(r *ringpb.Replicas) { r.Node[0] = 1<<32 - 1 },
		"length": func(r *ringpb.Replicas) { r.Node = r.Node[1:] },
	} {
		var pb ringpb.Map
		require.NoError(t, proto.Unmarshal(b[mapHeader:], &pb))
		spoil(pb.Placement[2])
		body, err := proto.Marshal(&pb)
		require.NoError(t, err)
		_, err = UnmarshalMap(seal(body))
		require.ErrorIs(t, err, sundog.Corrupt, name)
	}
}

// FuzzUnmarshalMap gives the decoder a body under a right checksum, so that the
// fuzzer gets past it, and the same bytes raw. What is read must be valid and
// come back the same.
func FuzzUnmarshalMap(f *testing.F) {
	for i, m := range []*Map{sampleMap(f), youngMap()} {
		b, err := m.Marshal()
		require.NoError(f, err)
		f.Add(b[mapHeader:])
		if *corpus {
			dir := filepath.Join("testdata", "fuzz", "FuzzUnmarshalMap")
			require.NoError(f, os.MkdirAll(dir, 0o755))
			for name, data := range map[string][]byte{"whole": b[mapHeader:], "half": b[mapHeader : mapHeader+len(b)/2], "sealed": b} {
				text := "go test fuzz v1\n[]byte(" + strconv.Quote(string(data)) + ")\n"
				require.NoError(f, os.WriteFile(filepath.Join(dir, name+strconv.Itoa(i)), []byte(text), 0o644))
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, b := range [][]byte{seal(body), body} {
			m, err := UnmarshalMap(b)
			if err != nil {
				require.ErrorIs(t, err, sundog.Corrupt)
				continue
			}
			require.NoError(t, m.Validate())
			again, err := m.Marshal()
			require.NoError(t, err)
			same, err := UnmarshalMap(again)
			require.NoError(t, err)
			require.Equal(t, m, same)
		}
	})
}
