// SPDX-License-Identifier: Apache-2.0
//
// What the numbers of a tensor are like, in one pass over it.

#pragma once

#include <cstdint>
#include <functional>

#include "fovea/tensor.h"

namespace fovea {

struct Summary {
  std::int64_t count = 0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  /// Of the finite numbers, if there are any; true is 1.
  double least = 0.0;
  double greatest = 0.0;
  double mean = 0.0;
  /// The same of int64, exactly.
  std::int64_t least_integer = 0;
  std::int64_t greatest_integer = 0;

  std::int64_t finite() const { return count - nans - infinities; }
};

/// Called now and then with the share that is done, from 0 to 1.
using SummaryProgress = std::function<void(double)>;

/// Numerics sums are in float64, for int64 exact.
/// Cost     one pass, about as fast as memory is read; a strided tensor is copied first.
Summary summarize(const TensorView& tensor, const SummaryProgress& progress = {});

}  // namespace fovea
