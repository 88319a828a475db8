#!/usr/bin/env bash
# Measures on this machine and rewrites the measured part of docs/results.md.
set -euo pipefail
cd "$(dirname "$0")/.."
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
SUNDOG_FIGURES=$figures go test -count=1 -timeout 30m -v -run TestFigures ./integration
awk -v figures="$figures" '
  /<!-- measured:begin -->/ { print; print ""; while ((getline line < figures) > 0) print line; skip = 1 }
  /<!-- measured:end -->/ { skip = 0 }
  !skip' docs/results.md > docs/results.md.new
mv docs/results.md.new docs/results.md
