package ring

import "github.com/sundog-kv/sundog"

// Bootstrap lays partitions × replicas over nodes for the first time.
func Bootstrap(nodes []Node, partitions, replicas int) ([]Replicas, error) {
	return nil, sundog.Errorf(sundog.Internal, "bootstrap")
}

// Plan edits a placement.
func Plan(current []Replicas, nodes []Node, replicas int) (target []Replicas, moves []Move, err error) {
	return current, nil, nil
}
