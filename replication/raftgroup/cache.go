package raftgroup

import (
	"sync"

	"github.com/hashicorp/raft"
)

// entryOverhead is what a cached entry costs beside its Data and Extensions.
const entryOverhead = 160

// logCache keeps the newest entries of all groups of a node within one number of
// bytes, oldest stored first out, so that followers are fed without reading the
// disk. A group's cached entries are contiguous and end at its last index.
type logCache struct {
	limit int64

	mu     sync.Mutex // guards what follows and every cachedLog
	bytes  int64
	seq    uint64
	order  []cacheRef // oldest first, from head on; stale ones are skipped
	head   int
	groups map[GroupID]*cachedLog
}

type cachedLog struct {
	first   uint64 // index of entries[0]
	entries []cachedEntry
}

type cachedEntry struct {
	log *raft.Log
	seq uint64
}

type cacheRef struct {
	group GroupID
	seq   uint64
}

func newLogCache(limit int64) *logCache {
	return &logCache{limit: limit, groups: make(map[GroupID]*cachedLog)}
}

func costOf(l *raft.Log) int64 {
	return entryOverhead + int64(len(l.Data)+len(l.Extensions))
}

// add caches entries that were stored, dropping what the group had at or above
// the first of them.
func (c *logCache) add(id GroupID, logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[id]
	if g == nil {
		g = &cachedLog{}
		c.groups[id] = g
	}
	c.cutSuffix(g, logs[0].Index)
	if len(g.entries) == 0 || g.first+uint64(len(g.entries)) != logs[0].Index {
		c.cutSuffix(g, 0)
		g.first = logs[0].Index
	}
	for _, l := range logs {
		c.seq++
		own := *l // raft reuses none of it, but the struct is its own
		g.entries = append(g.entries, cachedEntry{&own, c.seq})
		c.order = append(c.order, cacheRef{id, c.seq})
		c.bytes += costOf(l)
	}
	for c.bytes > c.limit && c.head < len(c.order) {
		c.evict()
	}
	if c.head > len(c.order)/2 {
		n := copy(c.order, c.order[c.head:])
		clear(c.order[n:])
		c.order, c.head = c.order[:n], 0
	}
}

// evict drops the oldest entry. It is its group's lowest: seq rises with index
// within a group.
func (c *logCache) evict() {
	ref := c.order[c.head]
	c.head++
	if g := c.groups[ref.group]; g != nil && len(g.entries) > 0 && g.entries[0].seq == ref.seq {
		c.dropFirst(g)
	}
}

func (c *logCache) dropFirst(g *cachedLog) {
	c.bytes -= costOf(g.entries[0].log)
	g.entries[0] = cachedEntry{}
	g.entries = g.entries[1:]
	g.first++
}

// cutSuffix drops entries at or above index.
func (c *logCache) cutSuffix(g *cachedLog, index uint64) {
	for n := len(g.entries); n > 0 && g.first+uint64(n)-1 >= index; n-- {
		c.bytes -= costOf(g.entries[n-1].log)
		g.entries[n-1] = cachedEntry{}
		g.entries = g.entries[:n-1]
	}
}

// truncate keeps only entries in [first, last] of the group.
func (c *logCache) truncate(id GroupID, first, last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[id]
	if g == nil {
		return
	}
	c.cutSuffix(g, last+1)
	for len(g.entries) > 0 && g.first < first {
		c.dropFirst(g)
	}
}

// get copies the entry into l; its Data is shared and never changed.
func (c *logCache) get(id GroupID, index uint64, l *raft.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[id]
	if g == nil || index < g.first || index >= g.first+uint64(len(g.entries)) {
		return false
	}
	*l = *g.entries[index-g.first].log
	return true
}

// used returns the bytes held.
func (c *logCache) used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}
