// SPDX-License-Identifier: Apache-2.0
//
// Results beside the reference: how far they are from it, and how far the naive computation in the
// same precision is, which they are judged by (docs/numerics.md, "The 1x rule").

#pragma once

#include <stdexcept>

#include "fovea/tensor.h"

namespace fovea::cli {

/// The engine's result is not what the reference says.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Largest differences from the oracle, over all that was added.
struct Deviations {
  double result = 0.0;
  double naive = 0.0;

  /// Tensors of one shape. Where naive is no finite number it is no yardstick, and the result may
  /// be what either has. Any other nan or infinity that the oracle does not have is off by
  /// infinity.
  void add(const TensorView& result, const TensorView& naive, const TensorView& oracle);
};

/// The largest of the finite sizes; 0 where there are none.
double largest_finite(const TensorView& values);

/// What rounding to a type does at most: half a unit in the last place, relative to the number, and
/// of the smallest numbers in itself.
struct Rounding {
  double relative;
  double near_zero;
};
Rounding rounding_of(DType type);

}  // namespace fovea::cli
