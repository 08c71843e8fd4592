// SPDX-License-Identifier: Apache-2.0
//
// Access to the files that tests read.

#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file_io.h"

namespace fovea::test {

/// Returns every scene in examples/scenes, sorted by name.
inline std::vector<std::filesystem::path> example_scenes() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(FOVEA_SCENES)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Reads a whole file. Throws IoError on failure, which fails the test.
inline std::string read_file(const std::filesystem::path& path) {
  return fovea::read_file(path.string(), std::int64_t{1} << 26);
}

}  // namespace fovea::test
