#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/part.sh NAME COMMAND...: runs one part of a check, prints its duration and appends it to build/parts.txt.
# `tools/part.sh --total` prints all recorded parts and their sum; `--reset` removes the records.

set -euo pipefail
cd "$(dirname "$0")/.."
parts=build/parts.txt

case $1 in
  --reset)
    rm -f "$parts"
    exit 0
    ;;
  --total)
    awk '{ print; sum += $1 } END { printf "%6d s  total, %.1f minutes\n", sum, sum / 60 }' "$parts"
    exit 0
    ;;
esac

name=$1
shift
mkdir -p build
echo "check: $name"
SECONDS=0
status=0
"$@" || status=$?
if [ "$status" -eq 0 ]; then
  echo "check: $name took $SECONDS s"
  printf '%6d s  %s\n' "$SECONDS" "$name" >>"$parts"
else
  echo "check: $name failed after $SECONDS s" >&2
fi
exit "$status"
