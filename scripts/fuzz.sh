#!/usr/bin/env bash
# Runs every fuzz target of the module for $FUZZTIME (default 5s) each. A crash
# ends it with the input that go test has saved under testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r pkg dir; do
  { grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null || true; } | sed 's/^func //' | while read -r target; do
    echo "== $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-5s}" "$pkg" </dev/null
  done
done
