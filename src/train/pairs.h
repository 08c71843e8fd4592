// SPDX-License-Identifier: Apache-2.0
//
// Pairs of texts from a file: a source text and its translation.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fovea::train {

/// The characters in [first, second), counted in code points.
using Range = std::pair<std::int64_t, std::int64_t>;

/// The source characters that a range of target characters comes from.
struct Origin {
  Range target;
  std::vector<Range> source;
};

struct Pair {
  std::string source;
  std::string target;
  std::vector<Origin> origins;  ///< empty if the file has none for this pair
  std::int64_t line = 0;        ///< line number in the file, from 1
};

/// Reads lines of two or three columns separated by tabs: source, target and, optionally, origins
/// such as "0-4=20-24,5-7=12-14+16-18" (target range = source ranges). A byte order mark before the
/// first line is skipped. Throws IoError if the file cannot be read. Throws InvalidArgument,
/// "FILE:LINE: ...", for a malformed line, an empty text or invalid UTF-8, and "FILE: ..." for an
/// empty file.
std::vector<Pair> read_pairs(const std::string& path);

/// Returns a hash of all pairs in order (FNV-1a), which detects that the pairs have changed.
std::uint64_t fingerprint(const std::vector<Pair>& pairs);

}  // namespace fovea::train
