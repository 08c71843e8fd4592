// SPDX-License-Identifier: Apache-2.0
//
// Summary statistics of a tensor, computed in one pass.

#pragma once

#include <cstdint>
#include <functional>

#include "fovea/tensor.h"

namespace fovea {

struct Summary {
  std::int64_t count = 0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  /// Minimum, maximum and mean of the finite values, if there are any; true counts as 1.
  double least = 0.0;
  double greatest = 0.0;
  double mean = 0.0;
  /// The exact minimum and maximum of int64 tensors.
  std::int64_t least_integer = 0;
  std::int64_t greatest_integer = 0;

  std::int64_t finite() const { return count - nans - infinities; }
};

/// Called periodically with the completed fraction, from 0 to 1.
using SummaryProgress = std::function<void(double)>;

/// Computes the summary of a tensor.
///
/// Numerics sums are accumulated in float64, or exactly for int64.
/// Cost     one pass at about memory bandwidth; a strided tensor is copied first.
Summary summarize(const TensorView& tensor, const SummaryProgress& progress = {});

}  // namespace fovea
