package node

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication/raftgroup"
	"github.com/sundog-kv/sundog/rpc"
	"github.com/sundog-kv/sundog/rpc/rpcpb"
)

// Pace of attempts to reach the catalog's leader.
const (
	leaderPauseMin = 20 * time.Millisecond
	leaderPauseMax = 500 * time.Millisecond
	leaderAsk      = time.Second      // one node's answer to "who leads?"
	writeDeadline  = 10 * time.Second // of a request that names none
)

// catalogWrite is one write to the catalog: done here if this node leads it,
// else sent to the node that does.
type catalogWrite struct {
	method rpc.Method
	here   func(context.Context) error // as the leader
	req    proto.Message               // marked as forwarded
	reply  proto.Message               // read into when forwarded
	relay  proto.Message               // for any node to bring to the leader; nil: not
	// again: an unknown outcome may be tried again, since doing it twice is as
	// doing it once.
	again bool
	// proof is the kind of error that tells what became of an earlier attempt of
	// unknown outcome, 0 for none: any other leaves it unknown.
	proof sundog.Kind
	doubt *bool // set when the outcome of an attempt was unknown; may be nil
}

// writer brings catalog writes to the catalog's leader.
type writer struct {
	self      sundog.NodeID
	council   *council
	directory *directory
	sources   func() []sundog.NodeID // nodes to ask who leads, best first
}

// do carries out a write. A node that was asked by another one (forwarded) does
// not ask further: it answers NotOwner with the leader it knows. Unavailable: no
// leader was found before the deadline, nothing was written. Unknown: it may
// have been; once an attempt ended so, only success and the write's proof say
// more.
func (w *writer) do(ctx context.Context, forwarded bool, write catalogWrite) error {
	if forwarded {
		return w.notLeader(write.here(ctx))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeDeadline)
		defer cancel()
	}
	return write.repeat(ctx, w.once)
}

// repeat makes attempts until one decides or ctx ends.
func (write catalogWrite) repeat(ctx context.Context, attempt func(context.Context, sundog.NodeID, catalogWrite) error) error {
	pause, unknown := leaderPauseMin, error(nil)
	var leader sundog.NodeID // as the last NotOwner said
	for {
		err := attempt(ctx, leader, write)
		switch kind := sundog.KindOf(err); {
		case err == nil || unknown != nil && kind == write.proof:
			return err
		case kind == sundog.Unknown:
			if write.doubt != nil {
				*write.doubt = true
			}
			if unknown = err; !write.again {
				return err
			}
		case kind == sundog.NotOwner || kind == sundog.Unavailable: // not written: try elsewhere
		case unknown != nil:
			return unknown
		default:
			return err
		}
		leader = leaderOf(err)
		if !wait(ctx, pause) {
			if unknown != nil {
				return unknown
			}
			return sundog.Errorf(sundog.Unavailable, "the catalog has no leader that this node reaches; the last answer was: %v", err)
		}
		pause = min(2*pause, leaderPauseMax)
	}
}

// once makes one attempt, at the node that is said to lead or else wherever the
// leader can be learnt.
func (w *writer) once(ctx context.Context, leader sundog.NodeID, write catalogWrite) error {
	if w.council.leads() {
		return write.here(ctx)
	}
	if leader == 0 {
		if st, ok := w.council.status(); ok {
			leader = st.Leader
		}
	}
	if leader == 0 {
		var via sundog.NodeID
		var err error
		if leader, via, err = w.askLeader(ctx); err != nil {
			return err
		}
		if leader == w.self && write.relay != nil {
			return w.directory.call(ctx, via, write.method, write.relay, write.reply)
		}
	}
	if leader == 0 || leader == w.self {
		return sundog.Errorf(sundog.Unavailable, "the catalog's leader is not known")
	}
	return w.directory.call(ctx, leader, write.method, write.req, write.reply)
}

// askLeader asks the sources, one after the other, who leads the catalog, and
// returns who told; 0 when nobody knows. This node is the answer where it led
// until now, or where another process leads under its id. When nobody tells and
// some refuse to speak with this node at all (another cluster, a copy of a
// running node), that is the error.
func (w *writer) askLeader(ctx context.Context) (leader, via sundog.NodeID, refusal error) {
	for _, id := range w.sources() {
		if ctx.Err() != nil {
			break
		}
		told, err := w.ask(ctx, id)
		if told != 0 && told != w.self {
			return told, id, nil
		}
		if told != 0 {
			leader, via = told, id
		}
		if refused(err) {
			refusal = err
		}
	}
	if leader != 0 {
		return leader, via, nil
	}
	return 0, 0, refusal
}

func (w *writer) ask(ctx context.Context, id sundog.NodeID) (sundog.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderAsk)
	defer cancel()
	var st rpcpb.StatusReply
	if err := w.directory.call(ctx, id, rpc.MethodStatus, &rpcpb.StatusRequest{}, &st); err != nil {
		return 0, err
	}
	for _, g := range st.GetGroups() {
		if g.GetGroup() == uint32(raftgroup.Catalog) {
			return sundog.NodeID(g.GetLeader()), nil
		}
	}
	return 0, nil
}

// refused says whether err is a refusal that trying again will not change.
func refused(err error) bool {
	switch sundog.KindOf(err) {
	case sundog.Conflict, sundog.Invalid, sundog.Denied:
		return true
	}
	return false
}

// notLeader adds what this node knows of the leader to a NotOwner.
func (w *writer) notLeader(err error) error {
	e, ok := errors.AsType[*sundog.Error](err)
	if !ok || e.Kind != sundog.NotOwner || e.Leader != 0 {
		return err
	}
	if st, ok := w.council.status(); ok {
		told := *e
		told.Leader = st.Leader
		return &told
	}
	return err
}

// leaderOf returns the leader that a NotOwner names, 0 otherwise.
func leaderOf(err error) sundog.NodeID {
	if e, ok := errors.AsType[*sundog.Error](err); ok && e.Kind == sundog.NotOwner {
		return e.Leader
	}
	return 0
}

// wait sleeps for d and says whether ctx still runs.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
