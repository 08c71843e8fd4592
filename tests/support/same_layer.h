// SPDX-License-Identifier: Apache-2.0
//
// Compares a layer in float32 with the same layer in float64: equal parameters, equal inputs, and a
// bound on the difference of the results.

#pragma once

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "fovea/nn/model.h"
#include "fovea/tensor.h"

#include "support/exactness.h"

namespace fovea::test {

/// Copies the parameters of one model to another with the same names, rounded to its type.
inline void copy_parameters(const nn::Model& from, nn::Model& to) {
  for (nn::Parameter& parameter : to.parameters()) {
    parameter.value =
        convert(from.parameters().find(parameter.name)->value, parameter.value.dtype());
  }
}

/// Checks that no element is off by more than `roundings` float32 roundings of the largest
/// magnitude, or of 1 if all are smaller. Callers pass the number of terms in the longest chain of
/// additions.
inline testing::AssertionResult within_roundings(const TensorView& found, const TensorView& exact,
                                                 double roundings) {
  if (found.shape() != exact.shape()) {
    return testing::AssertionFailure()
           << to_string(found.shape()) << " for " << to_string(exact.shape());
  }
  double largest = 1.0;
  for_each_index(exact.shape(),
                 [&](const Index& at) { largest = std::max(largest, std::abs(exact.value(at))); });
  const Deviation worst = deviation(found, exact);
  const double allowed = roundings * kRounding * largest;
  if (worst.largest <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "found " << worst.found << " at " << to_string(worst.at) << ", exactly "
         << worst.expected << ": off by " << worst.largest << ", allowed " << allowed;
}

}  // namespace fovea::test
