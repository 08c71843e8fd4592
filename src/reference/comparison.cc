// SPDX-License-Identifier: Apache-2.0
//
// Compares results with the reference (comparison.h).

#include "reference/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fovea::cli {
namespace {

/// Returns |a - b|. The difference of two equal infinities or two NaNs is 0; any other difference
/// that is not finite is infinity.
double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
  const double size = std::abs(a - b);
  return std::isfinite(size) ? size : std::numeric_limits<double>::infinity();
}

}  // namespace

void Deviations::add(const TensorView& result_values, const TensorView& naive_values,
                     const TensorView& oracle_values) {
  for_each_index(oracle_values.shape(), [&](const Index& index) {
    const double found = result_values.value(index);
    const double plain = naive_values.value(index);
    const double right = oracle_values.value(index);
    if (std::isfinite(plain)) {
      naive = std::max(naive, difference(plain, right));
    } else if (difference(found, plain) == 0.0) {
      return;
    }
    result = std::max(result, difference(found, right));
  });
}

double largest_finite(const TensorView& values) {
  double largest = 0.0;
  for_each_index(values.shape(), [&](const Index& index) {
    const double size = std::abs(values.value(index));
    if (std::isfinite(size)) largest = std::max(largest, size);
  });
  return largest;
}

Rounding rounding_of(DType type) {
  switch (type) {
    case DType::kBFloat16:
      return {0x1p-8, 0x1p-126};  // bfloat16 products flush subnormals to 0 (docs/numerics.md)
    case DType::kFloat16:
      return {0x1p-11, 0x1p-25};
    case DType::kFloat64:
      return {0x1p-53, 0x1p-1074};
    default:
      return {0x1p-24, 0x1p-149};
  }
}

}  // namespace fovea::cli
