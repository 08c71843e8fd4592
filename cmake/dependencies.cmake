# SPDX-License-Identifier: Apache-2.0
# What Fovea stands on; docs/dependencies.md says why each. `make setup` installs them on Debian.
# What the static library passes on to its users is looked for again in foveaConfig.cmake.in.

find_package(fmt REQUIRED)
find_package(hwy REQUIRED CONFIG)
find_package(OpenMP COMPONENTS CXX QUIET)
if(NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no OpenMP: GCC brings it along, Clang needs libomp "
    "in its own version. On Debian: tools/setup.sh build check")
endif()
if(FOVEA_FILES)
  find_package(nlohmann_json 3.10 REQUIRED)
  find_package(PkgConfig REQUIRED)
  # utf8proc ships no CMake package everywhere, but a pkg-config file it does.
  pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
  # Debian's CMake package of libzip asks for its command-line tools, which come separately.
  pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
  find_package(ZLIB REQUIRED)
endif()
if(FOVEA_NN)
  include(cmake/onednn.cmake)
  if(NOT TARGET DNNL::dnnl)
    message(FATAL_ERROR "fovea::nn needs oneDNN (on Debian: libdnnl-dev), or FOVEA_NN=OFF")
  endif()
endif()
if(FOVEA_CLI)
  find_package(CLI11 REQUIRED)
  find_package(PNG REQUIRED)
endif()
