package catalog

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog/catalogpb"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

const cluster = "0123456789abcdef0123456789abcdef"

var founding = Founding{
	Cluster: cluster, Partitions: 4, Founders: []sundog.NodeID{1, 2, 3},
	Timings: sundog.Timings{Heartbeat: time.Second, Lease: time.Second / 2},
}

// driver feeds a machine as its group would.
type driver struct {
	t     require.TestingT
	m     *Machine
	index uint64
	maps  []*ring.Map // as published
}

func newDriver(t require.TestingT) *driver {
	d := &driver{t: t}
	d.m = NewMachine(func(m *ring.Map) { d.maps = append(d.maps, m) })
	return d
}

func (d *driver) do(commands ...[]byte) []Result {
	d.index++
	out := d.m.Apply(raftgroup.Entry{Index: d.index, Term: 1, Commands: commands})
	require.Len(d.t, out, len(commands))
	results := make([]Result, len(out))
	for i := range out {
		results[i] = out[i].(Result)
	}
	if m := d.m.Map(); m != nil {
		require.NoError(d.t, m.Validate())
	}
	return results
}

func (d *driver) one(command []byte) Result { return d.do(command)[0] }

func (d *driver) ok(command []byte) Result {
	r := d.one(command)
	require.Nil(d.t, r.Err)
	return r
}

func (d *driver) refused(kind sundog.Kind, command []byte) string {
	before := d.m.Map()
	r := d.one(command)
	require.NotNil(d.t, r.Err)
	require.Equal(d.t, kind, r.Err.Kind, "%v", r.Err)
	require.Same(d.t, before, d.m.Map(), "a refused command changed the map")
	return r.Err.Error()
}

func up(id sundog.NodeID, boot, nonce uint64) []byte {
	return NodeUp(Start{Node: ring.Node{ID: id, Listen: fmt.Sprintf("127.0.0.1:%d", 7000+id), Boot: boot}, Nonce: nonce})
}

func (d *driver) found() {
	d.ok(Found(founding))
	for id := sundog.NodeID(1); id <= 3; id++ {
		d.ok(up(id, 1, uint64(id)))
	}
}

func strongSpec() sundog.PoolSpec {
	return sundog.PoolSpec{Consistency: sundog.Strong}.WithDefaults()
}

func (d *driver) birth(replicas int) []ring.Replicas {
	m := d.m.Map()
	rows, err := ring.Bootstrap(m.Nodes, m.Partitions, replicas)
	require.NoError(d.t, err)
	return rows
}

func TestFounding(t *testing.T) {
	d := newDriver(t)
	require.Nil(t, d.m.Map())
	r := d.one(up(1, 1, 1))
	require.Equal(t, sundog.Unavailable, r.Err.Kind)
	d.found()
	m := d.m.Map()
	require.Equal(t, cluster, m.Cluster)
	require.Equal(t, founding.Timings, m.Timings)
	require.Len(t, m.Nodes, 3)
	require.Equal(t, sundog.Epoch(d.index), m.Epoch)

	epoch := m.Epoch
	require.Equal(t, epoch, d.ok(Found(founding)).Epoch, "the same founding again changes nothing")
	other := founding
	other.Cluster = strings.Repeat("f", 32)
	msg := d.refused(sundog.Conflict, Found(other))
	require.Contains(t, msg, cluster)
	require.Contains(t, msg, other.Cluster)
}

func TestNodeStarts(t *testing.T) {
	d := newDriver(t)
	d.found()
	epoch := d.m.Map().Epoch
	require.Equal(t, epoch, d.ok(up(2, 1, 2)).Epoch, "the same start again changes nothing")
	d.ok(up(2, 5, 77))
	require.Contains(t, d.refused(sundog.Conflict, up(2, 4, 77)), "old copy")
	require.Contains(t, d.refused(sundog.Conflict, up(2, 5, 78)), "copies of one data directory")
	d.ok(SetRole(2, ring.Voter))
	d.ok(up(2, 6, 79))
	boot, nonce, ok := d.m.Start(2)
	require.True(t, ok)
	require.Equal(t, [2]uint64{6, 79}, [2]uint64{boot, nonce})
	d.reopen()
	boot, nonce, _ = d.m.Start(2)
	require.Equal(t, [2]uint64{6, 79}, [2]uint64{boot, nonce}, "by snapshot too")
	_, _, ok = d.m.Start(99)
	require.False(t, ok)
	n, ok := d.m.Map().Node(2)
	require.True(t, ok)
	require.Equal(t, ring.Voter, n.Catalog, "a restart keeps the role")
	require.Equal(t, uint64(6), n.Boot)
	d.refused(sundog.NotFound, SetRole(99, ring.Voter))
	d.refused(sundog.Invalid, SetRole(2, 9))
}

// TestJoinWithoutWork is CASE 23: partitions 4, so a 13th node of three replicas
// each would hold nothing.
func TestJoinWithoutWork(t *testing.T) {
	d := newDriver(t)
	d.found()
	for id := sundog.NodeID(4); id <= 12; id++ {
		d.ok(up(id, 1, 1))
	}
	require.Contains(t, d.refused(sundog.Conflict, up(13, 1, 1)), "--partitions")
	d.ok(up(12, 2, 2)) // who is in may restart
}

func TestPools(t *testing.T) {
	d := newDriver(t)
	d.found()
	d.refused(sundog.Invalid, PoolCreate("p", strongSpec(), nil)) // no placement
	d.refused(sundog.Invalid, PoolCreate("bad name", strongSpec(), d.birth(3)))
	first := d.ok(PoolCreate("p", strongSpec(), d.birth(3)))
	m := d.m.Map()
	require.Equal(t, sundog.PoolID(1), first.Pool)
	require.Equal(t, 3, m.Replicas)
	require.Equal(t, m.Epoch, m.Birth)
	require.Len(t, m.Placement, 4)

	r := d.one(PoolCreate("p", strongSpec(), nil))
	require.Equal(t, sundog.Exists, r.Err.Kind)
	require.Equal(t, first.Pool, r.Pool)
	require.Contains(t, r.Err.Msg, "same spec")

	two := strongSpec()
	two.Replicas = 2
	msg := d.refused(sundog.Invalid, PoolCreate("q", two, nil))
	require.Contains(t, msg, "--replicas 2")
	require.Contains(t, msg, "3 replicas")

	quota := strongSpec()
	quota.Quota = 1 << 20
	second := d.ok(PoolCreate("q", quota, nil))
	require.Equal(t, sundog.PoolID(2), second.Pool)
	d.ok(PoolDelete("q"))
	d.refused(sundog.NotFound, PoolDelete("q"))
	third := d.ok(PoolCreate("q", quota, nil))
	require.Equal(t, sundog.PoolID(3), third.Pool, "ids are never given again")

	quota.Quota = 2 << 20
	d.ok(PoolSet("q", Change{Quota: &quota.Quota}))
	require.Equal(t, quota, d.m.Map().Pools[1].Spec)
	d.refused(sundog.NotFound, PoolSet("nope", Change{Quota: &quota.Quota}))
	d.refused(sundog.Invalid, PoolSet("q", Change{Replicas: &two.Replicas}))
}

// TestChangesOfDifferentFieldsSurvive: two changes whose proposers both knew the
// first spec alone, in one entry and in two.
func TestChangesOfDifferentFieldsSurvive(t *testing.T) {
	for _, together := range []bool{true, false} {
		d := newDriver(t)
		d.found()
		d.ok(PoolCreate("p", strongSpec(), d.birth(3)))
		quota, largest := PoolSet("p", Change{Quota: new(int64(5 << 20))}), PoolSet("p", Change{MaxValue: new(int64(1000))})
		if together {
			d.do(quota, largest)
		} else {
			d.ok(quota)
			d.ok(largest)
		}
		want := strongSpec()
		want.Quota, want.MaxValue = 5<<20, 1000
		require.Equal(t, want, d.m.Map().Pools[0].Spec)
		before := want
		d.ok(PoolSet("p", Change{Quota: new(int64(0))}))
		before.Quota = 0
		require.Equal(t, before, d.m.Map().Pools[0].Spec, "a zero that is there is a change")
		d.refused(sundog.Invalid, PoolSet("p", Change{MaxValue: new(int64(-1))}))
	}
}

// TestWholeSpecIsStillRead: entries of the first builds carry a whole spec.
func TestWholeSpecIsStillRead(t *testing.T) {
	d := newDriver(t)
	d.found()
	d.ok(PoolCreate("p", strongSpec(), d.birth(3)))
	spec := strongSpec()
	spec.Quota = 7 << 20
	d.ok(encode(&catalogpb.Command{Kind: &catalogpb.Command_PoolSet{PoolSet: &catalogpb.PoolSet{Name: "p", Spec: encodeSpec(spec)}}}))
	require.Equal(t, spec, d.m.Map().Pools[0].Spec)
}

// TestOneMapAnEntry: all commands of an entry make one map of one epoch.
func TestOneMapAnEntry(t *testing.T) {
	d := newDriver(t)
	d.found()
	published := len(d.maps)
	d.do(up(4, 1, 1), up(5, 1, 1), PoolDelete("none"))
	require.Len(t, d.maps, published+1)
	require.Len(t, d.m.Map().Nodes, 5)
}

func TestUnreadableCommands(t *testing.T) {
	d := newDriver(t)
	d.found()
	d.refused(sundog.Corrupt, []byte("\xff\xff\xff"))
	d.refused(sundog.Invalid, nil) // version 0
}

// TestReplicasAgree replays random commands with restores in between and
// compares the encoded states: Apply is a function of the log alone.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newDriver(t), newDriver(t)
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			var entry [][]byte
			for range rapid.IntRange(0, 3).Draw(t, "commands") {
				entry = append(entry, randomCommand(t, a.m.Map()))
			}
			require.Equal(t, a.do(entry...), b.do(entry...))
			if rapid.IntRange(0, 4).Draw(t, "restore") == 0 {
				b.reopen()
			}
			require.Equal(t, a.bytes(), b.bytes())
		}
	})
}

// reopen replaces the machine by one restored from its snapshot.
func (d *driver) reopen() {
	data := d.bytes()
	next := NewMachine(d.m.publish)
	require.NoError(d.t, next.Restore(bytes.NewReader(data)))
	d.m = next
}

func (d *driver) bytes() []byte {
	s, err := d.m.Snapshot()
	require.NoError(d.t, err)
	defer s.Release()
	var out bytes.Buffer
	n, err := s.WriteTo(&out)
	require.NoError(d.t, err)
	require.Equal(d.t, int64(out.Len()), n)
	return out.Bytes()
}

func randomCommand(t *rapid.T, m *ring.Map) []byte {
	id := sundog.NodeID(rapid.Uint64Range(1, 6).Draw(t, "node"))
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pool")
	spec := strongSpec()
	spec.Quota = rapid.Int64Range(0, 2).Draw(t, "quota")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0, 1:
		return Found(founding)
	case 2:
		return up(id, rapid.Uint64Range(1, 3).Draw(t, "boot"), rapid.Uint64Range(1, 2).Draw(t, "nonce"))
	case 3:
		var birth []ring.Replicas
		if m != nil && len(m.Nodes) >= 3 {
			birth, _ = ring.Bootstrap(m.Nodes, m.Partitions, 3)
		}
		return PoolCreate(name, spec, birth)
	case 4:
		return PoolSet(name, Change{Quota: &spec.Quota})
	case 5:
		return PoolDelete(name)
	}
	return SetRole(id, ring.CatalogRole(rapid.IntRange(0, 2).Draw(t, "role")))
}

func TestRestoreRefuses(t *testing.T) {
	d := newDriver(t)
	d.found()
	before := d.m.Map()
	require.Error(t, d.m.Restore(strings.NewReader("\xff\xff")))
	require.Error(t, d.m.Restore(strings.NewReader("")))
	require.Same(t, before, d.m.Map())
}
