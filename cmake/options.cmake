# SPDX-License-Identifier: Apache-2.0
# Build options, and the compiler flags for all of Fovea's code. A project that includes Fovea through
# add_subdirectory only builds the attention library by default, and installs nothing.

option(FOVEA_CLI "Build the command line programs fovea and fovea-bench" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_FILES "Build fovea::files, which reads and writes tensor files" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_SCENE "Build fovea::scene, attention over a few words" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_RECORDING "Build fovea::recording, the attention of models in files" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_NN "Build trainable layers: fovea::nn and, with FOVEA_SCENE, fovea::train" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_VIEW "Build the viewer, fovea view, if the programs are built" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_MPI "Build fovea::mpi, attention over MPI" OFF)
option(FOVEA_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_EXAMPLES "Build the C++ examples" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BENCH "Build the benchmarks" OFF)
option(FOVEA_PYTHON "Build the Python package" OFF)
option(FOVEA_FUZZ "Build the fuzzers, with Clang" OFF)
option(FOVEA_INSTALL "Generate the install rules" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_COVERAGE "Instrument for line coverage with GCC" OFF)
option(FOVEA_UNITY "Compile the files of each folder together, which is faster (cmake/unity.cmake)" ON)
option(FOVEA_WERROR "Treat warnings as errors" OFF)
set(FOVEA_SANITIZE "" CACHE STRING "Sanitizers, in the form of the -fsanitize= argument")
set(FOVEA_SIMD_TARGETS "" CACHE STRING
  "x86 SIMD targets of the kernels, from AVX3;AVX2;SSE4;SCALAR; SCALAR is always compiled; empty: all")
option(FOVEA_FULL_SWEEPS "Run all attention test cases for every target and type, also with sanitizers" OFF)

# Check the dependencies between the options.
if((FOVEA_SCENE OR FOVEA_RECORDING OR FOVEA_NN) AND NOT FOVEA_FILES)
  message(FATAL_ERROR "FOVEA_SCENE, FOVEA_RECORDING and FOVEA_NN need FOVEA_FILES=ON")
endif()
foreach(part FOVEA_CLI FOVEA_TESTS FOVEA_EXAMPLES FOVEA_BENCH FOVEA_PYTHON)
  if(${part} AND NOT (FOVEA_SCENE AND FOVEA_RECORDING))
    message(FATAL_ERROR "${part} needs FOVEA_FILES=ON, FOVEA_SCENE=ON and FOVEA_RECORDING=ON")
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# All libraries, programs and tests of the project link to this target, which is not installed or exported.
add_library(fovea_flags INTERFACE)
target_compile_features(fovea_flags INTERFACE cxx_std_20)
target_compile_options(fovea_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  # Disable contraction to FMA, so that the reference is bit-reproducible on every CPU.
  -ffp-contract=off
  $<$<BOOL:${FOVEA_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False warnings of GCC 12: about overlapping copies in every `"text" + std::string()` (GCC bug 105651) and, if
  # optimising, about uninitialised members of std::optional and std::vector.
  target_compile_options(fovea_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(FOVEA_SANITIZE)
  target_compile_definitions(fovea_flags INTERFACE FOVEA_SANITIZED)
  target_compile_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE})
endif()
if(FOVEA_COVERAGE)
  # Atomic counters, so that concurrent threads lose no counts.
  target_compile_options(fovea_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(fovea_flags INTERFACE --coverage)
endif()
if(FOVEA_SIMD_TARGETS)
  # In addition to the targets disabled in fovea/simd_targets.h, which every file with kernels includes.
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
