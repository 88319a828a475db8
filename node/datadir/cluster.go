package datadir

import "github.com/sundog-kv/sundog"

// Cluster returns the id of the cluster the node belongs to, "" before it joined one.
func (d *Dir) Cluster() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id.Cluster
}

// SetCluster binds the directory to a cluster, durably and for ever. The same
// id again is nil. Conflict, naming both, when it belongs to another cluster
// already or accepted the founding of another.
func (d *Dir) SetCluster(cluster string) error {
	if err := CheckCluster(cluster); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.id.Cluster == cluster:
		return nil
	case d.id.Cluster != "":
		return sundog.Errorf(sundog.Conflict, "data directory %s belongs to cluster %s, not to %s: use the directory that belongs there, or an empty one",
			d.path, d.id.Cluster, cluster)
	case d.id.Founding != nil && d.id.Founding.Cluster != cluster:
		return sundog.Errorf(sundog.Conflict, "data directory %s has accepted the founding of cluster %s and cannot join %s: use an empty directory",
			d.path, d.id.Founding.Cluster, cluster)
	}
	next := d.id
	next.Cluster = cluster
	return d.writeIdentity(next)
}

// Heard returns the id of the first cluster this node heard of, "" for none. A
// node that heard of a cluster never founds one.
func (d *Dir) Heard() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id.Heard
}

// Hear notes durably that a cluster exists. Only the first id is kept.
func (d *Dir) Hear(cluster string) error {
	if err := CheckCluster(cluster); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Heard != "" {
		return nil
	}
	next := d.id
	next.Heard = cluster
	return d.writeIdentity(next)
}

// Founding returns the founding this node accepted, if it ever did.
func (d *Dir) Founding() (Founding, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Founding == nil {
		return Founding{}, false
	}
	return d.id.Founding.clone(), true
}

// AcceptFounding notes durably, before it returns nil, that this node accepts
// f. A node accepts one founding in its life: the same again is nil, another is
// Conflict naming both, and so is any but the own cluster's when the node
// belongs to one.
func (d *Dir) AcceptFounding(f Founding) error {
	if err := f.Check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.id.Founding != nil && d.id.Founding.Equal(f):
		return nil
	case d.id.Founding != nil:
		return sundog.Errorf(sundog.Conflict, "node %s has accepted the founding of %v and cannot accept that of %v", d.id.Node, *d.id.Founding, f)
	case d.id.Cluster != "":
		return sundog.Errorf(sundog.Conflict, "node %s belongs to cluster %s and cannot accept the founding of %v", d.id.Node, d.id.Cluster, f)
	}
	next := d.id
	f = f.clone()
	next.Founding = &f
	return d.writeIdentity(next)
}

// writeIdentity makes next the identity, on disk first. The caller holds mu or
// is the only one that knows d.
func (d *Dir) writeIdentity(next identity) error {
	data, err := encodeIdentity(next)
	if err != nil {
		return sundog.Errorf(sundog.Internal, "encode identity: %w", err)
	}
	if err := d.replace(identityName, data); err != nil {
		return err
	}
	d.id = next
	return nil
}
