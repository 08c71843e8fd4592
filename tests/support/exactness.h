// SPDX-License-Identifier: Apache-2.0
//
// The comparator of results: the error against the float64 oracle may exceed that of the naive
// computation in the same precision by a rounding or two (docs/numerics.md, "The 1x rule"). Tested
// in unit/support/comparator_test.cc.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "fovea/tensor.h"

namespace fovea::test {

/// The largest relative error of rounding to float32.
inline constexpr double kRounding = 0x1p-24;

/// The element with the largest difference from the oracle.
struct Deviation {
  double largest = 0.0;
  Index at;
  double found = 0.0;
  double expected = 0.0;
};

/// Returns the largest difference. Two NaNs or two equal infinities differ by 0; any other pair
/// with a non-finite value differs by infinity. The shapes must be equal.
inline Deviation deviation(const TensorView& found, const TensorView& oracle) {
  Deviation worst;
  for_each_index(oracle.shape(), [&](const Index& at) {
    const double x = found.value(at);
    const double y = oracle.value(at);
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    double difference = std::abs(x - y);
    if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference > worst.largest) worst = {difference, at, x, y};
  });
  return worst;
}

/// Checks the 1x rule: max |found - oracle| <= max |naive - oracle| + allowance.
inline testing::AssertionResult as_exact_as(const TensorView& found, const TensorView& naive,
                                            const TensorView& oracle, double allowance) {
  if (!found.defined() || found.shape() != oracle.shape() || naive.shape() != oracle.shape()) {
    return testing::AssertionFailure()
           << "shapes: found " << to_string(found.shape()) << ", naive " << to_string(naive.shape())
           << ", oracle " << to_string(oracle.shape());
  }
  const Deviation of_naive = deviation(naive, oracle);
  if (!std::isfinite(of_naive.largest) || !std::isfinite(allowance) || allowance < 0.0) {
    return testing::AssertionFailure()
           << "no yardstick: naive has " << of_naive.found << " at " << to_string(of_naive.at)
           << ", the oracle " << of_naive.expected << "; allowance " << allowance;
  }
  const Deviation of_found = deviation(found, oracle);
  if (of_found.largest <= of_naive.largest + allowance) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "found " << of_found.found << " at " << to_string(of_found.at) << ", the oracle has "
         << of_found.expected << ": off by " << of_found.largest << ", naive at most by "
         << of_naive.largest << ", and " << allowance << " is allowed on top";
}

/// Checks that all elements are equal bit by bit: -0 differs from 0, and NaNs must have equal
/// payloads.
inline testing::AssertionResult same_bits(const TensorView& a, const TensorView& b) {
  if (!a.defined() || a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return testing::AssertionFailure()
           << to_string(a.shape()) << " and " << to_string(b.shape()) << ", or of two types";
  }
  std::int64_t different = 0;
  Index first;
  for_each_index(a.shape(), [&](const Index& at) {
    const bool same = std::memcmp(a.address(at), b.address(at), dtype_size(a.dtype())) == 0;
    if (!same && different++ == 0) first = at;
  });
  if (different == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different << " of " << a.size() << " differ, the first at " << to_string(first) << ": "
         << a.value(first) << " and " << b.value(first);
}

}  // namespace fovea::test
