package catalog

import (
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/catalog/catalogpb"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/ring"
)

// maxSnapshot bounds what Restore reads: 16,384 partitions, a thousand nodes and
// thousands of pools are about 3 MiB.
const maxSnapshot = 256 << 20

// snapshot is the machine's state at one index. Maps are immutable, so it costs
// nothing to hold.
type snapshot struct {
	current *ring.Map
	starts  []*catalogpb.Start
}

// Snapshot implements [raftgroup.Machine].
func (m *Machine) Snapshot() (raftgroup.Snapshot, error) {
	return &snapshot{current: m.current, starts: startsOf(m.starts)}, nil
}

// WriteTo writes the whole state; see [raftgroup.Snapshot].
func (s *snapshot) WriteTo(w io.Writer) (int64, error) {
	out := &catalogpb.Snapshot{Version: version, Starts: s.starts}
	if s.current.Cluster != "" {
		b, err := s.current.Marshal()
		if err != nil {
			return 0, err
		}
		out.Map = b
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(b)
	return int64(n), err
}

// Release implements [raftgroup.Snapshot].
func (s *snapshot) Release() {}

// Restore replaces the state by a snapshot's; see [raftgroup.Machine]. On an
// error the old state stays.
func (m *Machine) Restore(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	if err != nil {
		return err
	}
	if len(b) > maxSnapshot {
		return sundog.Errorf(sundog.Corrupt, "catalog snapshot of more than %d bytes", maxSnapshot)
	}
	var in catalogpb.Snapshot
	if err := proto.Unmarshal(b, &in); err != nil {
		return sundog.Errorf(sundog.Corrupt, "catalog snapshot: %w", err)
	}
	if in.GetVersion() != version {
		return sundog.Errorf(sundog.Invalid, "catalog snapshot of version %d: this release knows %d", in.GetVersion(), version)
	}
	current := &ring.Map{}
	if len(in.GetMap()) > 0 {
		if current, err = ring.UnmarshalMap(in.GetMap()); err != nil {
			return err
		}
	}
	starts := make(map[sundog.NodeID]start, len(in.GetStarts()))
	for _, s := range in.GetStarts() {
		starts[sundog.NodeID(s.GetNode())] = start{s.GetBoot(), s.GetNonce()}
	}
	m.current = current
	m.mu.Lock()
	m.starts = starts
	m.mu.Unlock()
	if current.Cluster != "" {
		m.release()
	}
	return nil
}
