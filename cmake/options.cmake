# SPDX-License-Identifier: Apache-2.0
# What can be switched, and the flags that all of Fovea's own code is built with. A project that takes
# Fovea in through add_subdirectory gets the library alone: nothing else is built or installed.

option(FOVEA_CLI "Build the command line, fovea, and fovea-bench" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_FILES "Build files of tensors, fovea::files" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_SCENE "Build scenes, fovea::scene" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_NN "Build the layers that learn, fovea::nn and, with scenes, fovea::train" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_EXAMPLES "Build the C++ examples" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BENCH "Build the benchmarks" OFF)
option(FOVEA_PYTHON "Build the Python package" OFF)
option(FOVEA_FUZZ "Build the fuzzers, with Clang" OFF)
option(FOVEA_INSTALL "Generate the install rules" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_COVERAGE "Count which lines run, with GCC" OFF)
option(FOVEA_UNITY "Compile the files of a folder together, which is faster (cmake/unity.cmake)" ON)
option(FOVEA_WERROR "Treat warnings as errors" OFF)
set(FOVEA_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")
set(FOVEA_SIMD_TARGETS "" CACHE STRING
  "The SIMD targets of x86 to compile kernels for, of AVX3;AVX2;SSE4;SCALAR, SCALAR always; empty: all")
option(FOVEA_FULL_SWEEPS "Run every case of attention for every target and type, with sanitizers too" OFF)

# What stands on another library needs that one.
if((FOVEA_SCENE OR FOVEA_NN) AND NOT FOVEA_FILES)
  message(FATAL_ERROR "FOVEA_SCENE and FOVEA_NN need FOVEA_FILES=ON")
endif()
foreach(part FOVEA_CLI FOVEA_TESTS FOVEA_EXAMPLES FOVEA_BENCH FOVEA_PYTHON)
  if(${part} AND NOT FOVEA_SCENE)
    message(FATAL_ERROR "${part} needs FOVEA_FILES=ON and FOVEA_SCENE=ON")
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# One target that every library, program and test of ours links to, never installed or exported.
add_library(fovea_flags INTERFACE)
target_compile_features(fovea_flags INTERFACE cxx_std_20)
target_compile_options(fovea_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  # A product and a sum stay two roundings on every CPU: the reference is bit-reproducible.
  -ffp-contract=off
  $<$<BOOL:${FOVEA_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in every `"text" + std::string()` (its bug 105651), and, optimising,
  # members of std::optional and std::vector that are read unset. Neither is there.
  target_compile_options(fovea_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(FOVEA_SANITIZE)
  target_compile_definitions(fovea_flags INTERFACE FOVEA_SANITIZED)
  target_compile_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE})
endif()
if(FOVEA_COVERAGE)
  # Of threads that count at once none is lost.
  target_compile_options(fovea_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(fovea_flags INTERFACE --coverage)
endif()
if(FOVEA_SIMD_TARGETS)
  # On top of the list in fovea/simd_targets.h, which every file with kernels includes.
  set(left_out FOVEA_DISABLED_TARGETS)
  foreach(target AVX3 AVX2 SSE4)
    if(NOT target IN_LIST FOVEA_SIMD_TARGETS)
      list(APPEND left_out HWY_${target})
    endif()
  endforeach()
  list(JOIN left_out | left_out)
  target_compile_definitions(fovea_flags INTERFACE "HWY_DISABLED_TARGETS=(${left_out})")
  if(NOT AVX3 IN_LIST FOVEA_SIMD_TARGETS)
    target_compile_definitions(fovea_flags INTERFACE FOVEA_WITHOUT_AVX3)
  endif()
endif()
