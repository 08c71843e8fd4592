#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/other_cpus.sh: runs build/release on CPUs of AMD and Intel without AVX-512 and AMX, under qemu, which ends a
# program at an instruction that the CPU lacks. On each CPU, the expected SIMD target must be chosen, example programs
# must print the expected output, and fast unit tests must pass; `make test` runs all of them, and each target, on the
# own CPU. Emulation verifies results but says nothing about speed.

set -euo pipefail
cd "$(dirname "$0")/.."

logs=$PWD/build/other-cpus
tests=build/release/tests/fovea_unit_tests
jobs=${JOBS:-$(nproc)}

# CPU models of qemu, whose emulation has no AVX-512, and the SIMD target of each.
cpus='EPYC-Milan=AVX2 Haswell=AVX2 Westmere=SSE4 core2duo=SCALAR'
examples='look_inside explain_sentence custom_score'
# Forward and backward passes, decoding, lenses and weights, in all types: seconds per CPU, because qemu is 100 times
# slower on AVX2. Death tests start the test program as a new process, which is not emulated.
cases='AttentionInOneCall.* AttentionTarget.* AttentionSweep.EveryValueDim* AttentionStorage.Extreme*
  AttentionStorage.PairsOf* AttentionLayout.No* AttentionLayout.BatchLength* AttentionLayout.Fewer*
  AttentionMask.Causal* AttentionPacked.Plain AttentionPacked.Any* AttentionDecode.Masked* AttentionDecode.Writes*
  AttentionDecode.PagedLayout* AttentionDecodeLenses.Packed* AttentionLenses.Fully* AttentionLenses.Ties*
  AttentionDecode.EverySmall* AttentionWeights.Nan* AttentionBackwardProperties.NoGradients*
  AttentionBackwardTypes.EveryCombination* AttentionBackwardLenses.Relevance* AttentionBackwardLenses.Sums*'

fail() {
  echo "tools/other_cpus.sh: $*" >&2
  exit 1
}

# Runs everything on one CPU, "MODEL=TARGET", and prints a line with the result.
try_cpu() {
  local cpu=${1%=*} target=${1#*=} log=$logs/${1%=*}.log example
  emulate() { "$qemu" -cpu "$cpu" "$@" 2>>"$log"; }
  : >"$log"
  emulate build/release/fovea info >>"$log" || true
  grep -q " engine, on $target," "$log" || fail "$cpu: fovea info does not name the target $target; see $log"
  for example in $examples; do
    emulate "build/release/examples/cpp/example_$example" | cmp - "examples/cpp/$example.expected" >>"$log" 2>&1 ||
      fail "$cpu: the output of example_$example is not examples/cpp/$example.expected; see $log"
  done
  emulate "$tests" --gtest_filter="$filter" >>"$log" || fail "$cpu: the unit tests failed; see $log"
  echo "$cpu: on $target; $(grep -c '^\[       OK' "$log") unit tests and $(wc -w <<<"$examples") examples passed"
}

if [ "${1:-}" = --cpu ]; then
  try_cpu "$2"
  exit
fi

[ "$(uname -m)" = x86_64 ] || { echo "other CPUs: skipped, because this machine is not x86-64"; exit 0; }
qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64) || {
  echo "other CPUs: skipped, because there is no qemu-x86_64 (on Debian: tools/setup.sh cpus)"
  exit 0
}
set -f  # the patterns of $cases are not of file names
# shellcheck disable=SC2086
filter="$(echo $cases | tr ' ' ':')-*DeathTest.*"
set +f
export OMP_WAIT_POLICY=passive qemu filter
mkdir -p "$logs"
began=$SECONDS
# shellcheck disable=SC2086
printf '%s\n' $cpus | xargs -n 1 -P "$jobs" tools/other_cpus.sh --cpu || fail "not everything passed"
echo "other CPUs: ran in $((SECONDS - began)) s"
