package node

import (
	"errors"
	"io/fs"
	"math"
	"os"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/datadir"
	"github.com/sundog-kv/sundog/replication/raftgroup"
)

// storeName is the log store's file in the data directory.
const storeName = "raft.db"

// storeKey is where the data directory notes how often the log store was opened.
// No group has this number.
var storeKey = datadir.StepKey{Group: math.MaxUint32}

// openStore opens the log store. One that is gone, was emptied, or is an older copy
// than this directory has used is not taken: with less memory than it had, this node
// would vote against what it has acknowledged. The store counts its openings; the
// directory notes the count after each, before any group can vote.
func (n *Node) openStore() error {
	path, known := n.dir.Path(storeName), n.dir.Step(storeKey)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && known > 0 {
		return sundog.Errorf(sundog.Corrupt, "%s is gone: without its log this node must not vote; restore nothing, move the data directory away and let the node join with an empty one", path)
	}
	store, err := raftgroup.OpenStore(path, raftgroup.StoreConfig{Logger: n.log, Metrics: n.raft, Fatal: n.storeFailed, Openings: known})
	if err != nil {
		return err
	}
	n.opened("log store", store.Close)
	n.store = store
	return n.dir.RaiseSteps(map[datadir.StepKey]uint64{storeKey: store.Openings()})
}

// storeFailed ends the process: what the disk holds is no longer known, and to
// go on could acknowledge what a restart would not find.
func (n *Node) storeFailed(err error) {
	n.log.Error("the log store failed; this process ends", "err", err)
	panic("node: the log store failed: " + err.Error())
}
