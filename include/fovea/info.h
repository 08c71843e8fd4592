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
  /// Name and version, such as "GCC 12.2.0".
  std::string compiler;
  /// The CMake configuration, such as "Release"; "unspecified" if none was chosen.
  std::string build_type;
  /// The SIMD targets that both the CPU and this build support, best first, by Highway's names,
  /// such as "AVX3". "SCALAR" is the portable fallback. Never empty.
  std::vector<std::string> targets;
  /// The target used by the kernels: the first one, unless the environment variable FOVEA_TARGET
  /// names another. Chosen once per process.
  std::string target;
  /// For each type of tensors, how that target computes their products, in plain words.
  struct Products {
    std::string type, by;
  };
  std::vector<Products> products;
  /// The number of CPUs that this process may run on: from its affinity mask on Linux, otherwise
  /// all CPUs. At least 1.
  int threads = 1;
};

/// Returns information about the build and the machine. `threads` is queried at every call. Throws
/// InvalidArgument if FOVEA_TARGET names an unavailable target.
FOVEA_API BuildInfo build_info();

}  // namespace fovea
