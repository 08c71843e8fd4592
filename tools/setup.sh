#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/setup.sh GROUP...: installs the Debian packages that are missing for the groups build, test,
# check, bench, arm, cover and roots, saying which and why. With nothing missing it is silent and quick: every make
# target calls it first. FOVEA_SKIP_SETUP=1 skips it.

set -euo pipefail

if [ "${FOVEA_SKIP_SETUP:-}" = 1 ]; then
  exit 0
fi

# One line each: group, Debian package, what it is for, and the name and oldest version elsewhere.
packages='
build | g++                | C++20 compiler                              | GCC 12 or Clang 14
build | cmake              | configures the build                        | CMake 3.25
build | ninja-build        | runs the build                              | Ninja 1.10
build | pkg-config         | finds libraries                             | pkg-config 0.29
build | libfmt-dev         | formatting of messages and numbers          | {fmt} 9
build | libhwy-dev         | SIMD for every processor from one source    | Highway 1.0.3
build | libutf8proc-dev    | widths of characters in aligned text        | utf8proc 2.8
build | libzip-dev         | reading .npz files                          | libzip 1.7
build | zlib1g-dev         | checksums of .npz files                     | zlib 1.2.9
build | nlohmann-json3-dev | reading scenes and .safetensors             | nlohmann/json 3.10
build | libdnnl-dev        | products of matrices, to train layers        | oneDNN 2.6
build | libcli11-dev       | the command line                            | CLI11 2.1
build | libpng-dev         | maps of attention as images                 | libpng 1.6
test  | ccache             | compiles once what several builds share     | ccache 4
test  | libgtest-dev       | unit tests                                  | GoogleTest 1.12
test  | libgmock-dev       | matchers of the unit tests                  | GoogleMock 1.12
test  | tidy               | checks that pages are well-formed           | HTML Tidy 5.6
test  | zsh                | completes commands in a test                | zsh 5.8
test  | fish               | completes commands in a test                | fish 3.3
test  | mandoc             | checks the man pages                        | mandoc 1.14
test  | python3            | runs the tests of the command line          | Python 3.9
test  | python3-venv       | environment of the suites of others         | venv of Python 3.10
test  | python3-dev        | headers that the Python package needs       | headers of Python 3.11
test  | python3-jsonschema | checks scenes against their JSON Schema     | jsonschema 3.0
test  | python3-numpy      | makes the tensors of the README             | NumPy 1.19
check | clang              | second compiler, and the sanitizers         | Clang 14
check | clang-format       | checks the format of the code               | clang-format 14
check | CLANG-RT           | run-time library of the sanitizers          | compiler-rt 14
check | CLANG-OMP          | OpenMP for Clang                            | libomp 14 (LLVM)
bench | libbenchmark-dev   | measures                                    | Google Benchmark 1.7
bench | python3            | writes results and tables                   | Python 3.9
bench | python3-venv       | environments of other libraries             | venv of Python 3.9
cover | gcovr              | which lines the tests run                   | gcovr 5
arm   | g++-aarch64-linux-gnu | compiles for 64-bit ARM                  | GCC 12 for aarch64
arm   | qemu-user-static   | runs what is compiled for ARM               | QEMU 7, user mode
roots | debootstrap        | bare systems that the wheel is tried on     | debootstrap 1.0.128
'

fail() {
  local IFS=$'\n'
  echo "tools/setup.sh: $*" >&2
  exit 1
}

if [ $# -eq 0 ]; then
  fail "expected one or more of: build test check bench arm cover roots"
fi
for group in "$@"; do
  case $group in
    build | test | check | bench | arm | cover | roots) ;;
    *) fail "no group \"$group\"; there are: build test check bench arm cover roots" ;;
  esac
done

# Prints `package|reason|elsewhere` of the groups asked for, without the padding.
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

# Libraries of the system's Clang carry its version in their names.
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
  # Unknown packages make dpkg-query fail; they are simply not in its answer.
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $(cut -d '|' -f 1 <<<"$table") 2>/dev/null) || true
  missing=()
  while IFS='|' read -r package _; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || missing+=("$package")
  done <<<"$table"
}

case $table in *CLANG-*) name_clang_libraries ;; esac
find_missing

if [ ${#missing[@]} -gt 0 ]; then
  echo "Installing what is missing on this system:"
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
  # `env` because sudo would drop the variable. The lock: another apt may be at work.
  apt_get() {
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get -o DPkg::Lock::Timeout=300 -y "$@" >>"$log" 2>&1 </dev/null
  }
  # An update that fails is no reason to stop: the lists at hand may do.
  apt_get update || true
  apt_get install --no-install-recommends "${missing[@]}" || {
    tail -n 15 "$log" >&2
    fail "apt-get could not install them (its last lines are above). Please run as root, then try again:" "  $by_hand"
  }
  find_missing
  [ ${#missing[@]} -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
fi

# An older distribution has the package but not the version; CMake's own message would be obscure.
version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
if [ "${version%%.*}" -lt 3 ] || { [ "${version%%.*}" -eq 3 ] && [ "${version#*.}" -lt 25 ]; }; then
  fail "CMake 3.25 or newer is needed; $(command -v cmake) is $version"
fi
