package raftgroup

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/sundog-kv/sundog"
)

// What checkLength reads of bbolt's two meta pages (its format 2): the page's
// header, then magic, version, page size, flags, root bucket, freelist, high-water
// page and transaction.
const (
	metaMagic     = 0xED0CDAED
	metaAt        = 16
	metaPageSize  = metaAt + 8
	metaHighWater = metaAt + 40
	metaTx        = metaAt + 48
	metaSize      = metaAt + 64
)

// checkLength refuses a file that is shorter than its newest meta page says. bbolt
// maps it unchecked and would fault beyond its end, in a goroutine of its own where
// nobody can recover. Everything else is left to bbolt.
func checkLength(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return openError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return openError(path, err)
	}
	var highWater, newest uint64
	page := int64(os.Getpagesize())
	for at := int64(0); at <= page; at += page {
		b := make([]byte, metaSize)
		if _, err := f.ReadAt(b, at); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return openError(path, err)
		}
		if binary.LittleEndian.Uint32(b[metaAt:]) != metaMagic {
			continue
		}
		if tx := binary.LittleEndian.Uint64(b[metaTx:]); tx >= newest {
			newest = tx
			page := uint64(binary.LittleEndian.Uint32(b[metaPageSize:]))
			highWater = min(binary.LittleEndian.Uint64(b[metaHighWater:]), 1<<40) * page
		}
	}
	if uint64(info.Size()) < highWater {
		return sundog.Errorf(sundog.Corrupt, "raft log %s is damaged: it has %d bytes of %d; without them this node must not vote; move the data directory away and let the node join with an empty one",
			path, info.Size(), highWater)
	}
	return nil
}
