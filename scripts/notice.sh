#!/usr/bin/env bash
# NOTICE lists every module that is linked into the binary, with its licence.
#   scripts/notice.sh write   makes NOTICE anew
#   scripts/notice.sh check   fails when NOTICE is not what write would make
set -euo pipefail
cd "$(dirname "$0")/.."

modules() {
  go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/sundog | sort -u
}

# The licence by its own words; go-licenses, run by `make lint`, judges it too.
licence() {
  local file
  file=$(find "$1" -maxdepth 1 -iname 'licen[sc]e*' -o -maxdepth 1 -iname 'copying*' | sort | head -n 1)
  [ -n "$file" ] || { echo "no licence file"; return; }
  if   grep -qi 'Mozilla Public License' "$file"; then echo MPL-2.0
  elif grep -qi 'Apache License' "$file"; then echo Apache-2.0
  elif grep -qi 'Permission is hereby granted, free of charge' "$file"; then echo MIT
  elif grep -qi 'Permission to use, copy, modify, and' "$file"; then echo ISC
  elif grep -qiE 'Neither the name|names of (its|the) contributors' "$file"; then echo BSD-3-Clause
  elif grep -qi 'Redistribution and use in source and binary forms' "$file"; then echo BSD-2-Clause
  else echo "unknown licence"; fi
}

notice() {
  cat <<'HEAD'
Sundog
Copyright 2026 The Sundog Authors

Licensed under the Apache License, Version 2.0 (see LICENSE).

The sundog binary links these modules, each under its own licence. Those under
MPL-2.0 are used unmodified; their source is what the module proxy serves for the
version named here.

HEAD
  modules | while read -r path version dir; do
    printf '%-14s %s %s\n' "$(licence "$dir")" "$path" "$version"
  done
  cat <<'DATA'

The demo embeds names, versions, sections, dependencies and short descriptions of
packages of Debian 12, taken from its public package index.
DATA
}

case "${1:-}" in
  write) notice > NOTICE ;;
  check)
    if grep -qE '^(unknown|no) licen' <(notice); then notice | grep -E '^(unknown|no) licen'; exit 1; fi
    diff -u NOTICE <(notice) || { echo "NOTICE is out of date: run scripts/notice.sh write"; exit 1; } ;;
  *) echo "usage: scripts/notice.sh write|check" >&2; exit 2 ;;
esac
