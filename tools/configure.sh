#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/configure.sh PRESET [NAME=VALUE...]: configures build/PRESET if the tree is new, the presets have changed, or
# an option has another value. Prints CMake's output only if it fails. The build itself detects all other changes,
# such as an edited CMakeLists.txt.
#
# A new build/release uses ccache if available. The wheel and the tests that use Fovea through add_subdirectory then
# reuse objects compiled with the same options. A tree keeps its choice: another one would compile everything again.

set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
log=build/$preset/configure.log  # exists only after success
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

if [ "$preset" = release ] && [ ! -e "$cache" ] && command -v ccache >/dev/null; then
  switches+=("-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}")
fi
echo "Configuring build/$preset"
mkdir -p "build/$preset"
if ! cmake --preset "$preset" ${switches[@]+"${switches[@]}"} >"$log.new" 2>&1; then
  cat "$log.new" >&2
  rm -f "$log.new" "$log"
  exit 1
fi
mv "$log.new" "$log"
