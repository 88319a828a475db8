package datadir

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/sundog-kv/sundog"
)

// identityVersion is the format this code writes; it reads all from 1. A new
// field needs a new version: an older program does not know what it means. 2
// added refused and fenced.
const identityVersion = 2

// Founding is what the members of a new cluster agree on: DESIGN section 4.
// Two foundings are the same only if all of it is equal ([Founding.Equal]).
type Founding struct {
	Cluster string          `json:"cluster"`          // the new cluster's id: 32 hexadecimal digits
	Founder sundog.NodeID   `json:"founder"`          // the lowest of Members; it alone bootstraps
	Members []sundog.NodeID `json:"members"`          // sorted, each once
	Params  string          `json:"params,omitempty"` // what is fixed for ever, compared as text (partitions, timings)
}

// Equal reports whether f and g are one founding.
func (f Founding) Equal(g Founding) bool {
	return f.Cluster == g.Cluster && f.Founder == g.Founder && f.Params == g.Params && slices.Equal(f.Members, g.Members)
}

// Check says what is malformed; kind Invalid.
func (f Founding) Check() error {
	if err := CheckCluster(f.Cluster); err != nil {
		return err
	}
	if len(f.Members) == 0 {
		return sundog.Errorf(sundog.Invalid, "founding of %s names no members", f.Cluster)
	}
	for i, m := range f.Members {
		if m == 0 || i > 0 && m <= f.Members[i-1] {
			return sundog.Errorf(sundog.Invalid, "founding of %s: members must be sorted, each once, none zero", f.Cluster)
		}
	}
	if f.Founder != f.Members[0] {
		return sundog.Errorf(sundog.Invalid, "founding of %s: the founder must be the lowest member %s, not %s", f.Cluster, f.Members[0], f.Founder)
	}
	return nil
}

// String tells the founding in one line.
func (f Founding) String() string {
	ids := make([]string, len(f.Members))
	for i, m := range f.Members {
		ids[i] = m.String()
	}
	return fmt.Sprintf("cluster %s of {%s}", f.Cluster, strings.Join(ids, " "))
}

func (f Founding) clone() Founding {
	f.Members = slices.Clone(f.Members)
	return f
}

// CheckCluster says why s is not a cluster id (32 lower-case hexadecimal
// digits, not all zero); kind Invalid.
func CheckCluster(s string) error {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != 16 || s != strings.ToLower(s) || bytes.Equal(raw, make([]byte, 16)) {
		return sundog.Errorf(sundog.Invalid, "cluster id %.64q: want 32 lower-case hexadecimal digits, not all zero", s)
	}
	return nil
}

type identity struct {
	Node     sundog.NodeID `json:"node"`
	Boot     uint64        `json:"boot"`
	Created  time.Time     `json:"created"`
	Started  time.Time     `json:"started"`
	Cluster  string        `json:"cluster,omitempty"`
	Heard    string        `json:"heard,omitempty"`
	Founding *Founding     `json:"founding,omitempty"`
	Refused  *refusedStart `json:"refused,omitempty"` // the last start, where the cluster refused it
	Fenced   string        `json:"fenced,omitempty"`  // why no start is to be made from this directory
}

// refusedStart is a start that the cluster refused. It is repeated, not counted.
type refusedStart struct {
	Nonce  uint64 `json:"nonce"`
	Reason string `json:"reason"`
}

// identityFile is the file: the sum is XXH64, in hexadecimal, of the identity
// value as compact JSON.
type identityFile struct {
	About    string          `json:"about"`
	Version  int             `json:"version"`
	Sum      string          `json:"sum"`
	Identity json.RawMessage `json:"identity"`
}

func encodeIdentity(id identity) ([]byte, error) {
	body, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(identityFile{
		About:    "Identity of one Sundog node. Never copy it to another machine, never edit it.",
		Version:  identityVersion,
		Sum:      fmt.Sprintf("%016x", xxhash.Sum64(body)),
		Identity: body,
	}, "", "  ")
	return append(data, '\n'), err
}

func decodeIdentity(data []byte, name string) (identity, error) {
	corrupt := func(why string) (identity, error) {
		return identity{}, sundog.Errorf(sundog.Corrupt, "%s: %s; restore the file, or move the data directory away and let the node join as a new one", name, why)
	}
	var file identityFile
	if err := json.Unmarshal(data, &file); err != nil {
		return corrupt("not readable: " + err.Error())
	}
	if file.Version > identityVersion {
		return identity{}, sundog.Errorf(sundog.Invalid, "%s: written by a newer Sundog (format %d, this one knows %d); start that version, or a newer one",
			name, file.Version, identityVersion)
	}
	if file.Version < 1 {
		return corrupt(fmt.Sprintf("format %d does not exist", file.Version))
	}
	var body bytes.Buffer
	if err := json.Compact(&body, file.Identity); err != nil {
		return corrupt("not readable: " + err.Error())
	}
	if sum := fmt.Sprintf("%016x", xxhash.Sum64(body.Bytes())); sum != file.Sum {
		return corrupt(fmt.Sprintf("checksum %s, want %.16q", sum, file.Sum))
	}
	var id identity
	dec := json.NewDecoder(&body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&id); err != nil {
		return corrupt("not readable: " + err.Error())
	}
	if err := id.check(); err != nil {
		return corrupt(sundog.AsError(err).Msg)
	}
	return id, nil
}

func (id identity) check() error {
	if id.Node == 0 {
		return sundog.Errorf(sundog.Invalid, "no node id")
	}
	if id.Boot == 0 {
		return sundog.Errorf(sundog.Invalid, "no boot counter")
	}
	for _, c := range []string{id.Cluster, id.Heard} {
		if c != "" {
			if err := CheckCluster(c); err != nil {
				return err
			}
		}
	}
	if id.Refused != nil && id.Refused.Nonce == 0 {
		return sundog.Errorf(sundog.Invalid, "a refused start without a nonce")
	}
	if id.Founding != nil {
		return id.Founding.Check()
	}
	return nil
}
