package replication

import (
	"sync"

	"github.com/sundog-kv/sundog"
)

// Engines finds the engine that serves a pool's partition on this node. The
// zero value is empty and ready; it is safe for concurrent use.
type Engines struct {
	mu     sync.RWMutex // guards byPart
	byPart map[place]Engine
}

type place struct {
	consistency sundog.Consistency
	partition   sundog.Partition
}

// Add registers e for the pools of one consistency in one partition. It is of
// kind Exists when there is one already.
func (s *Engines) Add(c sundog.Consistency, p sundog.Partition, e Engine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byPart[place{c, p}]; ok {
		return sundog.Errorf(sundog.Exists, "partition %d has a %s engine already", p, c)
	}
	if s.byPart == nil {
		s.byPart = make(map[place]Engine)
	}
	s.byPart[place{c, p}] = e
	return nil
}

// Remove takes the engine out and returns it, nil if there is none. The caller
// closes it; requests that hold it get Closed from it.
func (s *Engines) Remove(c sundog.Consistency, p sundog.Partition) Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byPart[place{c, p}]
	delete(s.byPart, place{c, p})
	return e
}

// Find returns the engine for pools of consistency c in partition p. Without
// one the error is of kind NotOwner: this node holds no replica.
func (s *Engines) Find(c sundog.Consistency, p sundog.Partition) (Engine, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e, ok := s.byPart[place{c, p}]; ok {
		return e, nil
	}
	return nil, sundog.Errorf(sundog.NotOwner, "no %s replica of partition %d on this node", c, p)
}

// All returns the engines that are registered now, in no order.
func (s *Engines) All() []Engine {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Engine, 0, len(s.byPart))
	for _, e := range s.byPart {
		all = append(all, e)
	}
	return all
}
