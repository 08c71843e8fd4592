// SPDX-License-Identifier: Apache-2.0
//
// What this build is and what it found on this machine: for bug reports, for benchmark records and
// for `fovea info`.

#pragma once

#include <string>
#include <vector>

namespace fovea {

/// The build and the machine it runs on.
struct BuildInfo {
  /// "major.minor.patch".
  std::string version;
  /// Name and version, as in "GCC 12.2.0".
  std::string compiler;
  /// The CMake configuration, as in "Release"; "unspecified" when none was chosen.
  std::string build_type;
  /// The SIMD targets that this CPU offers and this build's compiler can make, best first, under
  /// Highway's names, as in "AVX3". Never empty.
  std::vector<std::string> targets;
  /// The CPUs this process may run on: its affinity mask on Linux, elsewhere all of them. At
  /// least 1.
  int threads = 1;
};

/// Asks the CPU and the operating system anew at every call.
BuildInfo build_info();

}  // namespace fovea
