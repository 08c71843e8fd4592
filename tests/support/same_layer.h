// SPDX-License-Identifier: Apache-2.0
//
// A layer in float32 beside the same one in float64: the same parameters, the same inputs, and how
// far their results may be apart.

#pragma once

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "fovea/nn/model.h"
#include "fovea/tensor.h"

#include "support/exactness.h"

namespace fovea::test {

/// The parameters of one become those of the other, which has the same names; rounded to its type.
inline void copy_parameters(const nn::Model& from, nn::Model& to) {
  for (nn::Parameter& parameter : to.parameters()) {
    parameter.value =
        convert(from.parameters().find(parameter.name)->value, parameter.value.dtype());
  }
}

/// Whether no number is off by more than so many roundings to float32 of the largest of them, or of
/// 1 where all are smaller: callers count the terms that the longest chain of sums has.
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
