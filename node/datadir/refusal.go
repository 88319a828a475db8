package datadir

// NoteRefusal notes durably that the cluster refused this start, and why: the
// next Open repeats it instead of counting on, however often. So a directory that
// is behind stays behind, and one that was refused by mistake has lost nothing:
// who has met this start takes the next for the same.
func (d *Dir) NoteRefusal(reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Refused != nil && d.id.Refused.Reason == reason {
		return nil
	}
	next := d.id
	next.Refused = &refusedStart{Nonce: d.nonce, Reason: reason}
	return d.writeIdentity(next)
}

// NoteAdmission notes that the cluster took this start: the next one is another.
// Without a refusal before it writes nothing.
func (d *Dir) NoteAdmission() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Refused == nil {
		return nil
	}
	next := d.id
	next.Refused = nil
	return d.writeIdentity(next)
}

// Fence notes durably, and for good, that no start is to be made from this
// directory: it is a copy, or older than what its node has acknowledged since.
// Every later Open is refused with the reason. Only the word of the cluster as a
// whole is ground enough: nothing takes it back.
func (d *Dir) Fence(reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Fenced != "" {
		return nil
	}
	next := d.id
	next.Fenced = reason
	return d.writeIdentity(next)
}
