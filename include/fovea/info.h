// SPDX-License-Identifier: Apache-2.0
//
// Information about the build and the machine, for bug reports, benchmark records and `fovea info`.

#pragma once

#include <string>
#include <vector>

#include "fovea/export.h"

namespace fovea {

/// The build and the machine it runs on.
struct BuildInfo {
  /// "major.minor.patch".
  std::string version;
  /// Name and version, as in "GCC 12.2.0".
  std::string compiler;
  /// The CMake configuration, as in "Release"; "unspecified" if none was chosen.
  std::string build_type;
  /// The SIMD targets that the CPU supports and the build contains, best first, under Highway's
  /// names, as in "AVX3"; "SCALAR" is the portable fallback. Never empty.
  std::vector<std::string> targets;
  /// The target that kernels run on: the first, unless the environment variable FOVEA_TARGET names
  /// another. Chosen once per process.
  std::string target;
  /// The number of CPUs this process may run on: its affinity mask on Linux, elsewhere all CPUs. At
  /// least 1.
  int threads = 1;
};

/// Returns the current information; `threads` is queried at every call. Throws InvalidArgument if
/// FOVEA_TARGET names an unavailable target.
FOVEA_API BuildInfo build_info();

}  // namespace fovea
