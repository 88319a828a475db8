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

// storeKey is where the data directory notes that the log store was made. No
// group has this number.
var storeKey = datadir.StepKey{Group: math.MaxUint32}

// openStore opens the log store. One that was made before and is gone is not
// made anew: with an empty memory this node would vote against what it has
// acknowledged. The note is on disk before any group can vote.
func (n *Node) openStore() error {
	path := n.dir.Path(storeName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && n.dir.Step(storeKey) > 0 {
		return sundog.Errorf(sundog.Corrupt, "%s is gone: without its log this node must not vote; restore nothing, move the data directory away and let the node join with an empty one", path)
	}
	store, err := raftgroup.OpenStore(path, raftgroup.StoreConfig{Logger: n.log, Metrics: n.raft, Fatal: n.storeFailed})
	if err != nil {
		return err
	}
	n.opened("log store", store.Close)
	n.store = store
	return n.dir.RaiseSteps(map[datadir.StepKey]uint64{storeKey: 1})
}

// storeFailed ends the process: what the disk holds is no longer known, and to
// go on could acknowledge what a restart would not find.
func (n *Node) storeFailed(err error) {
	n.log.Error("the log store failed; this process ends", "err", err)
	panic("node: the log store failed: " + err.Error())
}
