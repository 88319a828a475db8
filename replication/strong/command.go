package strong

import (
	"encoding/binary"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/replication"
	"github.com/sundog-kv/sundog/rpc"
)

// kind is the first byte of a command in the log. Numbers are append-only: a
// replica that meets one it does not know stops, since it could not stay equal.
type kind byte

const (
	kindOps   kind = 1 // one or more ops, each in rpc's encoding
	kindPools kind = 2 // the partition's pool set as of a catalog index
	kindCheck kind = 3 // every replica hashes one pool's table
	kindTick  kind = 4 // nothing but the entry's time
)

// command is a decoded command; which fields are set depends on the kind.
type command struct {
	kind    kind
	ops     []rpc.Op // alias the command's bytes
	set     poolSet
	checkID replication.CheckID
	pool    sundog.PoolID
}

// poolSet is the whole set of strong pools as of one catalog index.
type poolSet struct {
	catalog sundog.Epoch
	pools   []poolSpec // ascending ids
}

// poolSpec is what a replica keeps of a pool's spec: what admission needs once
// this replica leads.
type poolSpec struct {
	id       sundog.PoolID
	quota    int64 // bytes over all partitions, 0 none
	maxValue int64 // bytes
}

const (
	poolSpecSize   = 24
	poolSetHeader  = 8 + 4
	checkBodySize  = 16
	maxOpsPerEntry = 64 << 10 // a bound for decoding; Mutate's chunks stay far below
)

func appendOps(b []byte, ops []rpc.Op) []byte {
	b = append(b, byte(kindOps))
	for i := range ops {
		b = rpc.AppendOp(b, &ops[i])
	}
	return b
}

func appendPools(b []byte, set poolSet) []byte {
	b = append(b, byte(kindPools))
	b = binary.LittleEndian.AppendUint64(b, uint64(set.catalog))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set.pools)))
	for _, p := range set.pools {
		b = binary.LittleEndian.AppendUint16(b, poolSpecSize)
		b = appendPoolSpec(b, p)
	}
	return b
}

func appendPoolSpec(b []byte, p poolSpec) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(p.id))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.quota))
	return binary.LittleEndian.AppendUint64(b, uint64(p.maxValue))
}

func appendCheck(b []byte, id replication.CheckID, pool sundog.PoolID) []byte {
	b = append(b, byte(kindCheck))
	b = binary.LittleEndian.AppendUint64(b, uint64(id))
	return binary.LittleEndian.AppendUint64(b, uint64(pool))
}

func appendTick(b []byte) []byte { return append(b, byte(kindTick)) }

// decodeCommand reads one command; ops are decoded into the room of scratch.
// The error is of kind Corrupt.
func decodeCommand(b []byte, scratch []rpc.Op) (command, error) {
	if len(b) == 0 {
		return command{}, sundog.Errorf(sundog.Corrupt, "empty command")
	}
	c := command{kind: kind(b[0])}
	body := b[1:]
	var err error
	switch c.kind {
	case kindOps:
		c.ops, err = decodeOps(body, scratch)
	case kindPools:
		c.set, err = decodePools(body)
	case kindCheck:
		if len(body) != checkBodySize {
			return command{}, sundog.Errorf(sundog.Corrupt, "check command of %d bytes, want %d", len(body), checkBodySize)
		}
		c.checkID = replication.CheckID(binary.LittleEndian.Uint64(body))
		c.pool = sundog.PoolID(binary.LittleEndian.Uint64(body[8:]))
	case kindTick:
		if len(body) != 0 {
			return command{}, sundog.Errorf(sundog.Corrupt, "tick command with %d bytes after it", len(body))
		}
	default:
		return command{}, sundog.Errorf(sundog.Corrupt, "command kind %d is not known to this release: upgrade this node", b[0])
	}
	return c, err
}

func decodeOps(body []byte, scratch []rpc.Op) ([]rpc.Op, error) {
	ops := scratch[:0]
	for len(body) > 0 {
		if len(ops) == maxOpsPerEntry {
			return nil, sundog.Errorf(sundog.Corrupt, "more than %d ops in one command", maxOpsPerEntry)
		}
		op, rest, err := rpc.DecodeOp(body)
		if err != nil {
			return nil, sundog.Errorf(sundog.Corrupt, "op %d of a command: %w", len(ops), err)
		}
		ops = append(ops, op)
		body = rest
	}
	if len(ops) == 0 {
		return nil, sundog.Errorf(sundog.Corrupt, "a command without ops")
	}
	return ops, nil
}

func decodePools(body []byte) (poolSet, error) {
	if len(body) < poolSetHeader {
		return poolSet{}, sundog.Errorf(sundog.Corrupt, "pool set of %d bytes", len(body))
	}
	set := poolSet{catalog: sundog.Epoch(binary.LittleEndian.Uint64(body))}
	n := int(binary.LittleEndian.Uint32(body[8:]))
	body = body[poolSetHeader:]
	if n < 0 || n > len(body)/(2+poolSpecSize) {
		return poolSet{}, sundog.Errorf(sundog.Corrupt, "pool set says %d pools in %d bytes", n, len(body))
	}
	set.pools = make([]poolSpec, 0, n)
	for range n {
		if len(body) < 2 {
			return poolSet{}, sundog.Errorf(sundog.Corrupt, "pool set is cut off")
		}
		size := int(binary.LittleEndian.Uint16(body))
		if body = body[2:]; size < poolSpecSize || len(body) < size {
			return poolSet{}, sundog.Errorf(sundog.Corrupt, "pool record of %d bytes, %d left", size, len(body))
		}
		p := decodePoolSpec(body) // a longer record is a later release's: its further fields do not concern Apply
		body = body[size:]
		if k := len(set.pools); p.id == 0 || k > 0 && p.id <= set.pools[k-1].id {
			return poolSet{}, sundog.Errorf(sundog.Corrupt, "pool set is not in ascending order of ids")
		}
		set.pools = append(set.pools, p)
	}
	if len(body) != 0 {
		return poolSet{}, sundog.Errorf(sundog.Corrupt, "%d bytes after the pool set", len(body))
	}
	return set, nil
}

func decodePoolSpec(b []byte) poolSpec {
	return poolSpec{
		id:       sundog.PoolID(binary.LittleEndian.Uint64(b)),
		quota:    int64(binary.LittleEndian.Uint64(b[8:])),
		maxValue: int64(binary.LittleEndian.Uint64(b[16:])),
	}
}
