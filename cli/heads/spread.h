// SPDX-License-Identifier: Apache-2.0
//
// Statistics of the heads of one model over many texts: each recorded text, and each item of a
// batch, is one sample.

#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/heads/compute.h"

namespace fovea::cli {

/// Median and quartiles over the samples, interpolated linearly; NaN without any.
struct Quartiles {
  double median = std::numeric_limits<double>::quiet_NaN();
  double lower = std::numeric_limits<double>::quiet_NaN();
  double upper = std::numeric_limits<double>::quiet_NaN();

  /// Returns half the distance of the quartiles.
  double spread() const { return (upper - lower) / 2; }
};

/// The statistics of one head of the model.
struct HeadSpread {
  std::string attention;
  std::int64_t layer = 0;
  AttentionKind kind = AttentionKind::kSelf;
  std::int64_t head = 0;
  std::int64_t samples = 0;  ///< texts in which the head sees a key
  std::array<Quartiles, kHeadNumbers.size()> numbers{};
  Quartiles induction, duplicate;
  std::string name;        ///< the most frequent name; empty if no name fits most often
  std::int64_t named = 0;  ///< the samples with this name

  /// Returns the medians as a head, for sorting.
  HeadOfSource medians() const;
};

struct SpreadReport {
  std::vector<std::string> recordings;
  std::string model;
  std::int64_t blocks = 16;
  std::vector<HeadSpread> heads;  ///< heads are printed in this order
  std::int64_t all_heads = 0;     ///< the number of all heads, some of which may be left out
  std::string order;
  int threads = 1;
  double seconds = 0.0;
};

/// Computes the statistics over recordings. Throws IoError, and InvalidArgument if a file is not a
/// recording or has another model.
SpreadReport compute_spread(const std::vector<std::string>& recordings,
                            const RecordedArguments& selection, std::int64_t blocks, int threads,
                            Progress& progress);
/// Sorts by medians, as sort_heads() does.
void sort_spread(std::vector<HeadSpread>& heads, std::string_view order);

std::string spread_text(const SpreadReport& report, int width);
std::string spread_json(const SpreadReport& report);
std::string spread_csv(const SpreadReport& report);

}  // namespace fovea::cli
