#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/arm.sh: cross-compiles everything except the Python package for 64-bit ARM in build/arm. It runs the
# example programs and the faster unit tests under qemu with NEON, and lists the omitted tests. Emulation
# verifies results but says nothing about speed.
#
# The libraries are arm64 packages from the system's package sources. A private configuration of apt unpacks
# them into build/arm/sysroot, without installing anything and without changing the system's package database.
# Downloaded, unpacked and compiled files are kept, so an interrupted run can be repeated.

set -euo pipefail
cd "$(dirname "$0")/.."

arm=$PWD/build/arm
sysroot=$arm/sysroot
tree=$arm/tree
tests=$tree/tests/fovea_unit_tests
jobs=${JOBS:-$(nproc)}

# Suites to omit. Emulation is 10 to 100 times slower. These suites repeat the checks of `reduced` at full
# size, or take minutes each.
left_out='Attention* Train* Ceilings*'
reduced='AttentionSweep* AttentionTarget* AttentionMath* AttentionPacked* AttentionDecode*
  AttentionBackwardLayout* AttentionBackwardTypes* AttentionBackwardProperties*'
# Cases that start the test program as a new process. For ARM programs this requires binfmt.
death_tests='*DeathTest.* Target.*'
examples='look_inside explain_sentence attend custom_score learn'

fail() {
  local IFS=$'\n'
  echo "tools/arm.sh: $*" >&2
  exit 1
}
running=()
interrupted() {
  kill "${running[@]}" 2>/dev/null || true  # background processes do not receive Ctrl-C
  echo "tools/arm.sh: interrupted; what is done is kept, run it again to continue" >&2
  exit 130
}
trap interrupted INT TERM

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || qemu=
[ -n "$qemu" ] || fail "no qemu-aarch64-static, which the package qemu-user-static has"
for tool in aarch64-linux-gnu-g++ apt-get dpkg-deb cmake ninja; do
  command -v "$tool" >/dev/null || fail "no $tool (on Debian: tools/setup.sh build test arm)"
done

# The package name of the C++ library contains the compiler's version.
packages="libc6-dev libstdc++-$(aarch64-linux-gnu-g++ -dumpversion | cut -d . -f 1)-dev libgomp1
  libfmt-dev libhwy-dev libutf8proc-dev libzip-dev zlib1g-dev nlohmann-json3-dev libdnnl-dev
  libcli11-dev libpng-dev libboost-dev libgtest-dev libgmock-dev"

# Runs apt-get with separate lists, cache and (empty) package database under build/arm/apt. Sources, keys and
# proxies are those of the system. The system's hooks are disabled, because they clean up the system's folders.
arm_apt_get() {
  apt-get -c "$arm/apt/apt.conf" "$@" </dev/null >>"$arm/apt/log" 2>&1
}
make_sysroot() {
  local archives=$arm/apt/cache/archives new=$arm/sysroot.new package place target
  mkdir -p "$arm/apt/state/lists/partial" "$archives/partial"
  : >"$arm/apt/status"
  : >"$arm/apt/log"
  cat >"$arm/apt/apt.conf" <<END
#clear APT::Architectures;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Pre-Invoke;
#clear DPkg::Pre-Install-Pkgs;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Acquire::Retries "2";
Dir::State "$arm/apt/state";
Dir::State::status "$arm/apt/status";
Dir::Cache "$arm/apt/cache";
Dir::Log "$arm/apt";
END
  # Ignore a failed update: the failed source may not be needed, and older lists may suffice.
  arm_apt_get update || true
  # shellcheck disable=SC2086
  arm_apt_get install --download-only -y $packages || {
    grep -E '^(E|W|Err)' "$arm/apt/log" | tail -n 8 >&2
    fail "the arm64 packages could not be downloaded (apt's last messages are above)." \
      "What came is kept: with a network, run it again. All of apt's output: $arm/apt/log"
  }
  rm -rf "$new"
  mkdir -p "$new/usr/lib"
  ln -s usr/lib "$new/lib"
  for package in "$archives"/*.deb; do
    # Use tar, because dpkg-deb -x would replace the symbolic link lib with a folder.
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$new"
  done
  # Make absolute links relative, so that they stay inside the sysroot.
  find "$new" -type l -lname '/*' | while read -r place; do
    target=$(readlink "$place")
    ln -sfn "$(realpath -m -s --relative-to "$(dirname "$place")" "$new$target")" "$place"
  done
  rm -rf "$sysroot" "$tree"  # the old tree was compiled against the old sysroot
  mv "$new" "$sysroot"
  echo "$packages" >"$arm/sysroot.packages"
}

if [ ! -d "$sysroot" ] || [ "$(cat "$arm/sysroot.packages" 2>/dev/null)" != "$packages" ]; then
  echo "arm: unpacking arm64 packages into build/arm/sysroot"
  make_sysroot
fi

began=$SECONDS
if [ ! -e "$tree/build.ninja" ]; then
  echo "arm: configuring build/arm/tree"
  cmake --preset release -B "$tree" --toolchain cmake/aarch64.cmake -DFOVEA_PYTHON=OFF \
    -DFOVEA_WERROR=ON >"$arm/configure.log" 2>&1 || {
    rm -f "$tree/CMakeCache.txt"
    tail -n 20 "$arm/configure.log" >&2
    fail "CMake failed (its last lines are above)"
  }
fi
cmake --build "$tree" --parallel "$jobs" || fail "the build failed (see above); what was compiled is kept"
echo "arm: built in $((SECONDS - began)) s"

began=$SECONDS
# With this limit, the two tests that reserve terabytes are skipped; without it, qemu would grant them the memory.
ulimit -v 8000000
export OMP_WAIT_POLICY=passive
emulate() { "$qemu" -L "$sysroot" "$@"; }

failed=0
for example in $examples; do
  if emulate "$tree/examples/cpp/example_$example" | cmp -s - "examples/cpp/$example.expected"; then
    echo "arm: example_$example printed what it should"
  else
    echo "arm: example_$example FAILED: its output is not examples/cpp/$example.expected" >&2
    failed=1
  fi
done

# Prints the full names of all cases that match the filter.
list_cases() {
  emulate "$tests" --gtest_list_tests --gtest_filter="$1" |
    awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}'
}
join() { echo "$*" | tr -s ' \n' ':' | sed 's/:$//'; }
# The shell must not expand these patterns to file names.
set -f
# shellcheck disable=SC2086
first="*-$(join $left_out $death_tests)"
# shellcheck disable=SC2086
second="$(join $reduced)-$(join $death_tests)"
set +f
list_cases '*' >"$arm/cases.all" || fail "the unit tests do not start under qemu"
{ list_cases "$first" && list_cases "$second"; } | sort -u >"$arm/cases.run" || fail "the unit tests do not list their cases"
[ -s "$arm/cases.run" ] || fail "no case to run"

# Run shards in parallel; each writes its log to a separate file.
rm -f "$arm"/shard.*.log
for part in first second; do
  running=()
  for ((shard = 0; shard < jobs; ++shard)); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard "$qemu" -L "$sysroot" "$tests" \
      --gtest_filter="${!part}" >"$arm/shard.$part.$shard.log" 2>&1 &
    running+=($!)
  done
  for process in "${running[@]}"; do wait "$process" || failed=1; done
done
running=()
sed -n -E 's/^\[  FAILED  \] ([^ ,]+\.[^ ,]+).*ms\)$/arm: \1 FAILED/p' "$arm"/shard.*.log >&2
count() { cat "$arm"/shard.*.log | grep -c -E "^\[ *$1 *\] [A-Za-z0-9_/]+\.[^ ]+.* \([0-9]+ ms\)$" || true; }
passed=$(count OK) lost=$(count FAILED) skipped=$(count SKIPPED)
wanted=$(wc -l <"$arm/cases.run") all=$(wc -l <"$arm/cases.all")
# A shard that crashed reports fewer results than cases.
if [ $((passed + lost + skipped)) -ne "$wanted" ]; then
  echo "arm: of $wanted cases only $((passed + lost + skipped)) came to an end: see build/arm/shard.*.log" >&2
  failed=1
fi

echo "arm: left out under emulation, $((all - wanted)) of $all cases, which make test runs natively:"
sort "$arm/cases.all" | comm -23 - "$arm/cases.run" | cut -d . -f 1 | sed 's|^[^/]*/||' | uniq -c |
  awk '{printf "%s%s %s", NR == 1 ? "  " : ", ", $2, $1} END {print ""}'
echo "  also the command line's, Python's and the README's tests, and other SIMD targets than NEON"
echo "arm: ran in $((SECONDS - began)) s"
echo "arm: $passed passed, $lost failed, $skipped skipped"
[ "$lost" -eq 0 ] && [ "$failed" -eq 0 ] || fail "not everything passed; details in build/arm/shard.*.log"
