# SPDX-License-Identifier: Apache-2.0
# What Fovea stands on; docs/dependencies.md says why each. `make setup` installs them on Debian.

find_package(fmt REQUIRED)
find_package(hwy REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
