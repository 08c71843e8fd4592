// SPDX-License-Identifier: Apache-2.0
//
// Pairs of texts from a file: what is to be translated, and into what.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fovea::train {

/// Characters from `first` to before `second`, counted in code points.
using Range = std::pair<std::int64_t, std::int64_t>;

/// Which characters of the source some of the target's come from.
struct Origin {
  Range target;
  std::vector<Range> source;
};

struct Pair {
  std::string source;
  std::string target;
  std::vector<Origin> origins;  ///< empty where the file says nothing of it
  std::int64_t line = 0;        ///< in the file, from 1
};

/// Reads lines of two or three columns, with tabs between: source, target, and origins as
/// "0-4=20-24,5-7=12-14+16-18": target range = source ranges. Throws IoError for a file that cannot
/// be read, and InvalidArgument, "FILE:LINE: ...", for what does not read so, is empty or no UTF-8.
std::vector<Pair> read_pairs(const std::string& path);

/// A number that tells other pairs from these (FNV-1a of all of them, in order).
std::uint64_t fingerprint(const std::vector<Pair>& pairs);

}  // namespace fovea::train
