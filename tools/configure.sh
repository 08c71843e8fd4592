#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/configure.sh PRESET [NAME=VALUE...]: configures build/PRESET, quietly unless it fails, and
# only when there is a reason: the tree is new, the presets changed, or a switch has another value.
# All else, an edited CMakeLists.txt for one, the build itself notices.
#
# A new build/release compiles through ccache, where there is one: the wheel and the tests that take
# Fovea in as a subdirectory then have from there what they compile alike.

set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
log=build/$preset/configure.log  # only there after a success
cache=build/$preset/CMakeCache.txt

reason=no
if [ ! -e "$log" ] || [ CMakePresets.json -nt "$log" ]; then
  reason=yes
fi
switches=()
for switch in "$@"; do
  switches+=("-D$switch")
  grep -qs "^${switch%%=*}:[A-Z]*=${switch#*=}$" "$cache" || reason=yes
done
[ "$reason" = yes ] || exit 0

if [ "$preset" = release ] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}  # for a new tree only
fi
echo "Configuring build/$preset"
mkdir -p "build/$preset"
if ! cmake --preset "$preset" ${switches[@]+"${switches[@]}"} >"$log.new" 2>&1; then
  cat "$log.new" >&2
  rm -f "$log.new" "$log"
  exit 1
fi
mv "$log.new" "$log"
