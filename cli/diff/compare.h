// SPDX-License-Identifier: Apache-2.0
//
// Comparison of two recordings, head by head.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/map.h"
#include "fovea/recording.h"

#include "cli/problem/arguments.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// The difference of a head: Jensen-Shannon divergences in nats (fovea/analysis.h).
struct HeadDifference {
  std::size_t attention = 0;  ///< index of the compared attention
  std::int64_t batch = 0;
  std::int64_t head = 0;  ///< of the model
  double mean = 0.0;      ///< NaN if the head sees no key
  double largest = 0.0;
  std::int64_t query = -1;  ///< where it is largest; -1 if nowhere
  std::string token;        ///< the token there; empty if there are none
};

struct Comparison {
  Recording first, second;
  std::vector<RecordedAttention> attentions;  ///< of the first recording
  std::vector<HeadDifference> heads;          ///< by attention, batch item and head
  std::vector<std::string> left_out;          ///< selected attentions that only the second one has
  int threads = 1;
  double seconds = 0.0;
};

/// Compares the selected attentions of the first recording, which the second must have. Throws
/// InvalidArgument if it does not, or if their tokens differ, with the first place where they do.
Comparison compare(const Recording& first, const Recording& second,
                   const RecordedArguments& selection, int threads, Progress& progress);

/// Returns the mean divergences as a map: a row for each attention and batch item, a column for
/// each head of the model; cells without a head are masked. `labels` is set to the layers.
MapCells difference_map(const Comparison& comparison, std::vector<std::string>& row_labels,
                        std::vector<std::string>& column_labels);

}  // namespace fovea::cli
