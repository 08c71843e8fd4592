// SPDX-License-Identifier: Apache-2.0
//
// What this build is and what it found on this machine: for bug reports, for benchmark records and
// for `fovea info`.

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
  /// The CMake configuration, as in "Release"; "unspecified" when none was chosen.
  std::string build_type;
  /// The SIMD targets that this CPU offers and this build holds, best first, under Highway's names,
  /// as in "AVX3"; "SCALAR" is the portable fallback. Never empty.
  std::vector<std::string> targets;
  /// The one of them that kernels run on: the first, unless the environment variable FOVEA_TARGET
  /// names another. Chosen once per process.
  std::string target;
  /// The CPUs this process may run on: its affinity mask on Linux, elsewhere all of them. At
  /// least 1.
  int threads = 1;
};

/// Asks the operating system anew at every call. Throws InvalidArgument when FOVEA_TARGET names no
/// target that is there.
FOVEA_API BuildInfo build_info();

}  // namespace fovea
