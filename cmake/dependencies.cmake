# SPDX-License-Identifier: Apache-2.0
# Fovea's dependencies; docs/dependencies.md gives the reason for each. `make setup` installs them on Debian.
# foveaConfig.cmake.in searches again for those that users of the static library have to link.

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
  # Not all distributions of utf8proc include a CMake package, but all include a pkg-config file.
  pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
  # Debian's CMake package of libzip requires its command-line tools, which are in another Debian package.
  pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
  find_package(ZLIB REQUIRED)
endif()
if(FOVEA_SCENE OR FOVEA_CLI)
  find_program(ESBUILD esbuild)
  if(NOT ESBUILD)
    message(FATAL_ERROR "the pages need esbuild (on Debian: esbuild), or FOVEA_SCENE=OFF and FOVEA_CLI=OFF")
  endif()
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
if(FOVEA_CLI AND FOVEA_VIEW)
  # Headers only: no compiled library of Boost is linked.
  find_package(Boost 1.74 REQUIRED)
  find_package(Threads REQUIRED)
endif()
