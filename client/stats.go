package client

import "sync/atomic"

// Stats counts what a [Client] did since Dial; a snapshot, each field exact by
// itself. Keys of a batch count one by one.
type Stats struct {
	Gets, Puts, Deletes, Incrs uint64 // keys asked for
	ScanPages                  uint64
	Frames                     uint64 // requests sent, retries included
	Retries                    Retries
	Redirects                  uint64 // NotOwner answers whose hint was followed at once
	Unknowns                   uint64 // mutations that ended with sundog.Unknown
	MapRefreshes               uint64 // maps asked for; callers that shared one count once
	Dials                      uint64 // connections tried
}

// Retries counts requests that were sent again, by reason.
type Retries struct {
	NotOwner    uint64 // the node does not lead the partition
	Stale       uint64 // our map, or the node's, was old
	Unavailable uint64 // not reached, or reached and not served
	Lost        uint64 // a read whose connection broke or whose node fell silent
	Split       uint64 // a batch read whose reply was too large, asked for in halves
}

// counters is the live form of Stats.
type counters struct {
	gets, puts, deletes, incrs, scanPages, frames atomic.Uint64
	redirects, unknowns, refreshes, dials         atomic.Uint64
	retries                                       [reasons]atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Gets: c.gets.Load(), Puts: c.puts.Load(), Deletes: c.deletes.Load(), Incrs: c.incrs.Load(),
		ScanPages: c.scanPages.Load(), Frames: c.frames.Load(),
		Retries: Retries{
			NotOwner:    c.retries[reasonNotOwner].Load(),
			Stale:       c.retries[reasonStale].Load(),
			Unavailable: c.retries[reasonUnavailable].Load(),
			Lost:        c.retries[reasonLost].Load(),
			Split:       c.retries[reasonSplit].Load(),
		},
		Redirects: c.redirects.Load(), Unknowns: c.unknowns.Load(),
		MapRefreshes: c.refreshes.Load(), Dials: c.dials.Load(),
	}
}
