package demo

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"

	"github.com/sundog-kv/sundog/client"
)

// packages is the first 12,000 rows of Debian 12's package index by name: key TAB
// JSON of version, section, installed size, dependencies and short description.
//
//go:embed packages.tsv.gz
var packages []byte

// records unpacks the embedded rows.
func records() ([]client.Pair, error) {
	r, err := gzip.NewReader(bytes.NewReader(packages))
	if err != nil {
		return nil, fmt.Errorf("embedded records: %w", err)
	}
	var pairs []client.Pair
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, ok := bytes.Cut(bytes.Clone(lines.Bytes()), []byte{'\t'})
		if !ok {
			return nil, errors.New("embedded records: a line without a tab")
		}
		pairs = append(pairs, client.Pair{Key: key, Value: value})
	}
	return pairs, lines.Err()
}
