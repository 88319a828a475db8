#!/usr/bin/env bash
# scripts/need.sh COMMAND PACKAGE...: the command must be there. As root with apt its
# Debian packages are installed when it is not; otherwise it is said how.
set -euo pipefail
command -v "$1" >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "$1 is missing: installing ${*:2}"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${@:2}" >/dev/null
else
  echo "$1 is needed: install it, on Debian with: apt-get install ${*:2}" >&2
  exit 1
fi
