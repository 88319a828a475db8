package sundog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/sundog-kv/sundog"

// walls says which rooms a room may import inside the module, besides itself and
// what lies below it in its own folder. The longest matching prefix rules. The
// root package is the room "".
var walls = map[string][]string{
	"":                      {},
	"dataplane":             {""},
	"dataplane/table":       {"", "dataplane"},
	"ring":                  {""},
	"rpc":                   {""},
	"replication":           {"", "ring", "rpc", "dataplane", "dataplane/table"},
	"replication/raftgroup": {"", "ring", "rpc"},
	"replication/strong":    {"", "ring", "rpc", "dataplane", "dataplane/table", "replication", "replication/raftgroup"},
	"client":                {"", "ring", "rpc", "dataplane", "dataplane/table"},
	"node":                  {"", "ring", "rpc", "dataplane", "dataplane/table", "replication", "replication/raftgroup", "replication/strong"},
	"bench":                 {"", "ring", "rpc", "dataplane", "dataplane/table", "client"},
	"cmd":                   {"*"},
	"examples":              {"*"},
	"integration":           {"*", "!cmd"},
}

// goPackage is what `go list -json` says of a package, as far as it matters here.
type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Imports    []string
	CgoFiles   []string
	GoFiles    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Imports,CgoFiles,GoFiles", "./...")
	out, err := cmd.Output()
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("go list: %v\n%s", err, ee.Stderr)
	}
	require.NoError(t, err)
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// roomOf returns the room a package of this module lies in: the longest key of
// walls that is the path or a folder above it.
func roomOf(path string) (string, bool) {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for {
		if _, ok := walls[rel]; ok {
			return rel, true
		}
		i := strings.LastIndexByte(rel, '/')
		if i < 0 {
			return "", false
		}
		rel = rel[:i]
	}
}

func allowed(from, to string) bool {
	rules := walls[from]
	if from == to || slices.Contains(rules, to) {
		return true
	}
	return slices.Contains(rules, "*") && !slices.Contains(rules, "!"+to)
}

// TestWalls holds the imports between rooms to DESIGN section 2.
func TestWalls(t *testing.T) {
	for _, p := range listPackages(t) {
		from, ok := roomOf(p.ImportPath)
		require.True(t, ok, "%s lies in no room of the house: add it to walls, with what it may import", p.ImportPath)
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			to, ok := roomOf(imp)
			require.True(t, ok, "%s imports %s, which lies in no room", p.ImportPath, imp)
			require.True(t, allowed(from, to), "wall broken: %s (room %q) imports %s (room %q)", p.ImportPath, from, imp, to)
		}
		require.True(t, len(p.CgoFiles) == 0 || from == "dataplane" && strings.HasSuffix(p.ImportPath, "/ofi"),
			"%s uses cgo: only dataplane/ofi may", p.ImportPath)
	}
}
