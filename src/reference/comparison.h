// SPDX-License-Identifier: Apache-2.0
//
// Compares results with the reference. The yardstick is the error of the naive computation in the
// same precision (docs/numerics.md, "The 1x rule").

#pragma once

#include <stdexcept>

#include "fovea/tensor.h"

namespace fovea::cli {

/// Thrown if the engine's result deviates too much from the reference.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The largest differences from the oracle over all tensors added.
struct Deviations {
  double result = 0.0;
  double naive = 0.0;

  /// Adds tensors of the same shape. Where a naive element is not finite, its error is not
  /// counted, and the result may equal either the naive element or the oracle. Any other NaN or
  /// infinity that the oracle does not have counts as an infinite deviation.
  void add(const TensorView& result, const TensorView& naive, const TensorView& oracle);
};

/// Returns the largest absolute value among the finite elements, or 0 if there are none.
double largest_finite(const TensorView& values);

/// The maximum error of rounding to a type (half an ulp): the relative error, and the absolute
/// error for values near zero.
struct Rounding {
  double relative;
  double near_zero;
};
Rounding rounding_of(DType type);

}  // namespace fovea::cli
