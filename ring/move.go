package ring

import (
	"slices"

	"github.com/sundog-kv/sundog"
)

// Move is one step of a plan: a partition gains at most one replica and loses at
// most one. Executed as add learner, catch up, promote, remove, the majorities
// before and after each membership change overlap.
type Move struct {
	Partition sundog.Partition
	Add       sundog.NodeID // who gets a replica; 0: none
	Remove    sundog.NodeID // who gives one up once Add is a voter; 0: none
}

// Apply returns the list after the move, without touching the argument: the new
// replica, under the incarnation that the step gave, stands where the old one
// stood, or last. Kind Conflict when the list does not fit the move: Add is in
// it, or Remove is not.
func (mv Move) Apply(list Replicas, incarnation uint32) (Replicas, error) {
	at := list.Index(mv.Remove)
	if mv.Remove != 0 && at < 0 || mv.Add != 0 && list.Index(mv.Add) >= 0 {
		return nil, sundog.Errorf(sundog.Conflict, "move of partition %d from %s to %s does not fit its replicas", mv.Partition, mv.Remove, mv.Add)
	}
	out := slices.Clone(list)
	switch {
	case mv.Add != 0 && mv.Remove != 0:
		out[at] = Replica{Node: mv.Add, Incarnation: incarnation}
	case mv.Add != 0:
		out = append(out, Replica{Node: mv.Add, Incarnation: incarnation})
	case mv.Remove != 0:
		out = slices.Delete(out, at, at+1)
	}
	return out, nil
}
