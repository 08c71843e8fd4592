#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/setup.sh GROUP...: installs missing Debian packages of the groups build, test, check, pages, bench, arm, cpus,
# cover, roots, mpi and simulate, and lists them with their purpose. If no package is missing, it is fast and prints
# nothing, as most make targets call it first. FOVEA_SKIP_SETUP=1 skips it.

set -euo pipefail

if [ "${FOVEA_SKIP_SETUP:-}" = 1 ]; then
  exit 0
fi

# Each line has the group, the Debian package, its purpose, and the upstream name with the oldest supported version.
packages='
build | g++                | C++20 compiler                              | GCC 12 or Clang 14
build | cmake              | configures the build                        | CMake 3.25
build | ninja-build        | runs the build                              | Ninja 1.10
build | pkg-config         | finds libraries                             | pkg-config 0.29
build | ccache             | shares compiled objects between builds      | ccache 4
build | libfmt-dev         | formatting of messages and numbers          | {fmt} 9
build | libhwy-dev         | portable SIMD                               | Highway 1.0.3
build | libutf8proc-dev    | character widths in aligned text            | utf8proc 2.8
build | libzip-dev         | reading .npz files                          | libzip 1.7
build | zlib1g-dev         | checksums of .npz files                     | zlib 1.2.9
build | nlohmann-json3-dev | reading scenes and .safetensors             | nlohmann/json 3.10
build | libdnnl-dev        | matrix products for training                | oneDNN 2.6
build | libcli11-dev       | parsing of command lines                    | CLI11 2.1
build | libpng-dev         | attention maps as images                    | libpng 1.6
build | libboost-dev       | the server of fovea view                    | Boost 1.74
build | esbuild            | makes the scripts and styles of pages small | esbuild 0.17
test  | libgtest-dev       | unit tests                                  | GoogleTest 1.12
test  | libgmock-dev       | matchers of the unit tests                  | GoogleMock 1.12
test  | tidy               | checks that pages are well-formed           | HTML Tidy 5.6
test  | zsh                | tests of command completion                 | zsh 5.8
test  | fish               | tests of command completion                 | fish 3.3
test  | mandoc             | checks the man pages                        | mandoc 1.14
test  | python3            | runs the tests of the command line          | Python 3.9
test  | python3-venv       | virtual environments for tests              | venv of Python 3.10
test  | python3-dev        | headers for the Python package              | headers of Python 3.11
test  | python3-jsonschema | checks scenes against their JSON Schema     | jsonschema 3.0
test  | python3-numpy      | tensor files for the README tests           | NumPy 1.19
check | clang              | second compiler, and the sanitizers         | Clang 14
check | clang-format       | checks the format of the code               | clang-format 14
check | CLANG-RT           | run-time library of the sanitizers          | compiler-rt 14
check | CLANG-OMP          | OpenMP for Clang                            | libomp 14 (LLVM)
check | node-typescript    | checks the types of scripts of pages        | TypeScript 4.8
bench | libbenchmark-dev   | benchmarks                                  | Google Benchmark 1.7
bench | python3            | writes results and tables                   | Python 3.9
bench | python3-venv       | environments for other libraries            | venv of Python 3.9
pages | chromium-headless-shell | opens the pages under test             | Chromium 120
pages | fonts-dejavu-core  | letters, mathematics and symbols of pages   | DejaVu 2.37
pages | fonts-droid-fallback | Chinese words of pages                    | any font with Chinese characters
pages | fonts-noto-color-emoji | emoji words of pages                    | any font with emoji
pages | python3            | drives the browser                          | Python 3.10
pages | python3-venv       | an environment for Playwright and axe       | venv of Python 3.10
cover | gcovr              | reports line coverage                       | gcovr 5
arm   | g++-aarch64-linux-gnu | compiles for 64-bit ARM                  | GCC 12 for aarch64
arm   | qemu-user-static   | runs ARM programs                           | QEMU 7, user mode
cpus  | qemu-user-static   | runs programs on emulated CPUs              | QEMU 7.2, user mode
roots | debootstrap        | bare systems for tests of the wheel         | debootstrap 1.0.128
mpi   | libopenmpi-dev     | attention over MPI                          | Open MPI 4.1
mpi   | openmpi-bin        | starts processes of MPI                     | Open MPI 4.1
mpi   | python3-mpi4py     | tests of fovea.distributed                  | mpi4py 3.1
simulate | libsimgrid-dev  | simulated clusters                          | SimGrid 3.32, with SMPI
simulate | python3         | runs the simulations                        | Python 3.9
'

fail() {
  local IFS=$'\n'
  echo "tools/setup.sh: $*" >&2
  exit 1
}

if [ $# -eq 0 ]; then
  fail "expected one or more of: build test check pages bench arm cpus cover roots mpi simulate"
fi
for group in "$@"; do
  case $group in
    build | test | check | pages | bench | arm | cpus | cover | roots | mpi | simulate) ;;
    *) fail "no group \"$group\"; there are: build test check pages bench arm cpus cover roots mpi simulate" ;;
  esac
done

# Prints `package|reason|elsewhere` for the packages of the selected groups, without padding.
wanted() {
  local group package reason elsewhere
  while IFS='|' read -r group package reason elsewhere; do
    read -r group <<<"$group"
    case " $groups " in
      *" ${group:-none} "*)
        read -r package <<<"$package"
        read -r reason <<<"$reason"
        read -r elsewhere <<<"$elsewhere"
        printf '%s|%s|%s\n' "$package" "$reason" "$elsewhere"
        ;;
    esac
  done <<<"$packages"
}
groups="$*"
table=$(wanted)

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  {
    echo "tools/setup.sh: this system has no apt-get, so please install these yourself:"
    while IFS='|' read -r package reason elsewhere; do
      printf '  %-20s %s\n' "$elsewhere" "$reason"
    done <<<"$table"
    echo "(each in this version or a newer one, with its headers)"
    echo "then run: make FOVEA_SKIP_SETUP=1 TARGET"
  } >&2
  exit 1
fi

# The package names of Clang's libraries contain its version.
clang_version() {
  local depends
  depends=$(dpkg-query -W -f='${Depends}' clang 2>/dev/null || apt-cache depends clang 2>/dev/null) || true
  [[ $depends =~ clang-([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}
name_clang_libraries() {
  local version
  version=$(clang_version || echo 14)
  table=${table/CLANG-RT/libclang-rt-$version-dev}
  table=${table/CLANG-OMP/libomp-$version-dev}
}

missing=()
find_missing() {
  local installed package
  # dpkg-query fails if a package is unknown, but still prints the others.
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $(cut -d '|' -f 1 <<<"$table") 2>/dev/null) || true
  missing=()
  while IFS='|' read -r package _; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || missing+=("$package")
  done <<<"$table"
}

case $table in *CLANG-*) name_clang_libraries ;; esac
find_missing

if [ ${#missing[@]} -gt 0 ]; then
  echo "Installing missing packages:"
  while IFS='|' read -r package reason _; do
    case " ${missing[*]} " in *" $package "*) printf '  %-20s %s\n' "$package" "$reason" ;; esac
  done <<<"$table"

  as_root=()
  by_hand="apt-get install --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root, and there is no sudo. Please run as root, then try again:" "  $by_hand"
    as_root=(sudo)
  fi
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # `env`, because sudo would drop the variable. The lock timeout waits for another running apt.
  apt_get() {
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get -o DPkg::Lock::Timeout=300 -y "$@" >>"$log" 2>&1 </dev/null
  }
  # Ignore a failed update: the existing lists may suffice.
  apt_get update || true
  apt_get install --no-install-recommends "${missing[@]}" || {
    tail -n 15 "$log" >&2
    fail "apt-get could not install them (its last lines are above). Please run as root, then try again:" "  $by_hand"
  }
  find_missing
  [ ${#missing[@]} -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
fi

# An older distribution may have an older CMake, whose own message would be less clear.
version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
if [ "${version%%.*}" -lt 3 ] || { [ "${version%%.*}" -eq 3 ] && [ "${version#*.}" -lt 25 ]; }; then
  fail "CMake 3.25 or newer is needed; $(command -v cmake) is $version"
fi
