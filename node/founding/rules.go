package founding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
)

// Founding is the agreement: a new cluster's id, its members, its parameters.
type Founding = datadir.Founding

// Member is what gossip says of a node, this one included.
type Member struct {
	ID      sundog.NodeID
	Expect  int    // its --bootstrap-expect, 0 when it was started without
	Cluster string // its cluster, "" for none
}

// Knowledge is all that the rules look at.
type Knowledge struct {
	Self     sundog.NodeID
	Expect   int       // this node's --bootstrap-expect, 0 for none: it never founds nor accepts
	Params   string    // what this node would fix for ever: partitions, timings
	Accepted *Founding // durable: what this node accepted, nil for nothing
	Cluster  string    // durable: the cluster it belongs to, "" for none
	Heard    string    // durable: the first cluster it heard of, "" for none
	Members  []Member  // the present view, in any order

	// Bootstrapped: durable: this node's catalog was bootstrapped by the founding in Accepted.
	Bootstrapped bool
}

// candidates are the members that count towards a founding of N: those without
// a cluster that expect N themselves, and this node. Sorted by id. A node that
// was started only to join thus never disturbs a founding.
func (k Knowledge) candidates() []sundog.NodeID {
	ids := []sundog.NodeID{k.Self}
	for _, m := range k.Members {
		if m.Cluster == "" && m.Expect == k.Expect && m.ID != k.Self {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// heard returns a cluster id that this node knows of, its own first, or "".
// other leaves out one id.
func (k Knowledge) heard(other string) string {
	for _, c := range []string{k.Cluster, k.Heard} {
		if c != "" && c != other {
			return c
		}
	}
	for _, m := range k.Members {
		if m.Cluster != "" && m.Cluster != other {
			return m.Cluster
		}
	}
	return ""
}

// Step is what a node does next.
type Step uint8

// The steps.
const (
	// Wait: look again when the view changes. Reason says what for.
	Wait Step = iota
	// Propose: this node is the lowest of exactly N; ask all whether they would
	// accept, then accept durably and go on with Resume. Founding has no
	// cluster id yet.
	Propose
	// Resume: this node accepted its own founding; collect the acceptances of
	// all, bootstrap, done, whatever members the view shows now.
	Resume
	// Belong: this node accepted another's founding; start empty and wait.
	Belong
	// Join: a cluster exists; Cluster names it.
	Join
	// Stuck: this node began a founding and another cluster exists. Only an
	// operator can tell which one is wanted. Reason says what to do.
	Stuck
)

// Decision is a step with what belongs to it.
type Decision struct {
	Step     Step
	Founding Founding // Propose (without cluster id), Resume, Belong
	Cluster  string   // Join
	Reason   string   // Wait, Stuck: for the operator
}

// Decide applies the rules of founding to what a node knows.
func Decide(k Knowledge) Decision {
	if k.Cluster != "" {
		return Decision{Step: Join, Cluster: k.Cluster}
	}
	if k.Accepted != nil {
		return decideAccepted(k)
	}
	if c := k.heard(""); c != "" {
		return Decision{Step: Join, Cluster: c}
	}
	if k.Expect < 1 {
		return Decision{Step: Wait, Reason: "no cluster heard of yet, and not started with --bootstrap-expect: waiting for a member of one (--join)"}
	}
	ids := k.candidates()
	switch {
	case len(ids) < k.Expect:
		return Decision{Step: Wait, Reason: fmt.Sprintf("founding: %d of %d nodes seen (%s)", len(ids), k.Expect, list(ids))}
	case len(ids) > k.Expect:
		return Decision{Step: Wait, Reason: fmt.Sprintf("founding: %d nodes seen (%s) and --bootstrap-expect is %d: stop the surplus ones, or start them without it",
			len(ids), list(ids), k.Expect)}
	case ids[0] != k.Self:
		return Decision{Step: Wait, Reason: fmt.Sprintf("founding: waiting for the lowest node %s to ask", ids[0])}
	}
	return Decision{Step: Propose, Founding: Founding{Founder: k.Self, Members: ids, Params: k.Params}}
}

// decideAccepted is Decide for a node that accepted a founding and is in no
// cluster. A member keeps to its word whatever it hears. A founder that hears of
// another cluster stops asking, unless its own already exists.
func decideAccepted(k Knowledge) Decision {
	f := *k.Accepted
	if f.Founder != k.Self {
		return Decision{Step: Belong, Founding: f}
	}
	if c := k.heard(f.Cluster); c != "" && !k.Bootstrapped {
		return Decision{Step: Stuck, Founding: f, Reason: fmt.Sprintf("founding: this node began to found cluster %s, and cluster %s exists: "+
			"to join that one start from an empty data directory", f.Cluster, c)}
	}
	return Decision{Step: Resume, Founding: f}
}

// Ask is the founder's request to each member. A dry one asks whether the node
// would accept, and changes nothing.
type Ask struct {
	Founding Founding
	Dry      bool
}

// Judge says why a node refuses an ask, nil when it accepts (the caller then
// makes that durable before it answers). from is the node that asks, as proved
// by its connection. Kinds: Conflict is for ever; Unavailable may pass (the two
// see different members); Invalid is a malformed ask.
func Judge(k Knowledge, from sundog.NodeID, ask Ask) error {
	f := ask.Founding
	if err := f.Check(); err != nil {
		return err
	}
	if f.Founder != from {
		return sundog.Errorf(sundog.Invalid, "node %s asks for a founding by %s", from, f.Founder)
	}
	if k.Accepted != nil && k.Accepted.Equal(f) {
		return nil // again, after a lost answer or a restart of either side
	}
	if k.Accepted != nil && !mutantAcceptTwice {
		return sundog.Errorf(sundog.Conflict, "node %s has accepted the founding of %v already", k.Self, *k.Accepted)
	}
	if c := k.heard(""); c != "" {
		return sundog.Errorf(sundog.Conflict, "node %s knows of cluster %s and takes part in no founding", k.Self, c)
	}
	if k.Expect < 1 {
		return sundog.Errorf(sundog.Conflict, "node %s was started without --bootstrap-expect", k.Self)
	}
	if k.Expect != len(f.Members) {
		return sundog.Errorf(sundog.Conflict, "node %s was started with --bootstrap-expect %d and is asked to found with %d", k.Self, k.Expect, len(f.Members))
	}
	if ids := k.candidates(); !slices.Equal(ids, f.Members) {
		return sundog.Errorf(sundog.Unavailable, "node %s sees {%s} and is asked to found with {%s}", k.Self, list(ids), list(f.Members))
	}
	if k.Params != f.Params {
		return sundog.Errorf(sundog.Conflict, "node %s was started with %q and is asked to found with %q: start all with the same", k.Self, k.Params, f.Params)
	}
	return nil
}

// Tally counts the acceptances of one founding. An acceptance is for ever, so
// it may be gathered over any time, from members that are up one after another.
type Tally struct {
	founding Founding
	yes      map[sundog.NodeID]bool
}

// NewTally starts a count with nobody's acceptance.
func NewTally(f Founding) *Tally {
	return &Tally{founding: f, yes: make(map[sundog.NodeID]bool, len(f.Members))}
}

// Add counts a member's acceptance; others are ignored, and twice is once.
func (t *Tally) Add(id sundog.NodeID) {
	if slices.Contains(t.founding.Members, id) {
		t.yes[id] = true
	}
}

// Missing returns the members that have not accepted, sorted. None missing is
// the one condition under which the founder may bootstrap.
func (t *Tally) Missing() []sundog.NodeID {
	var ids []sundog.NodeID
	for _, id := range t.founding.Members {
		if !t.yes[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

func list(ids []sundog.NodeID) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = id.String()
	}
	return strings.Join(text, " ")
}
