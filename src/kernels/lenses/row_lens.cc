// SPDX-License-Identifier: Apache-2.0
//
// Lenses of one row of weights (row_lens.h), compiled once per SIMD target, and the runtime
// dispatch to the active target.

#include "fovea/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lenses/row_lens.cc"
#include <hwy/foreach_target.h>
// The include above compiles the rest of this file once per SIMD target.

#include <algorithm>
#include <cstdint>
#include <limits>

#include <hwy/highway.h>

#include "fovea/simd_math-inl.h"

#include "kernels/lenses/row_lens.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels::HWY_NAMESPACE {

/// Logarithm of the weight of a hidden key.
constexpr float kNoWeight = -std::numeric_limits<float>::infinity();

/// Finds the maximum and its key, and whether any element is NaN.
void find_maximum(const WeightRowLogs& row, RowSums& sums) {
  const Floats d;
  Vector most = hn::Set(d, kNoWeight);
  auto spoilt = hn::Gt(most, most);
  for (std::int64_t k = 0; k < row.count; k += kLanes) {
    const Vector x = hn::LoadU(d, row.log2_weights + k);
    spoilt = hn::Or(spoilt, hn::Not(hn::Eq(x, x)));
    most = hn::Max(most, x);
  }
  sums.nan = !hn::AllFalse(d, spoilt);
  // On some targets, hn::MaxOfLanes starts from the lowest float, which is greater than -inf.
  HWY_ALIGN float lanes[kLanes];
  hn::Store(most, d, lanes);
  sums.maximum = *std::max_element(lanes, lanes + kLanes);
  if (sums.nan || sums.maximum == kNoWeight) return;
  const Vector maximum = hn::Set(d, sums.maximum);
  for (std::int64_t k = 0; k < row.count; k += kLanes) {
    const auto here = hn::Eq(hn::LoadU(d, row.log2_weights + k), maximum);
    if (hn::AllFalse(d, here)) continue;
    sums.maximum_key = k + static_cast<std::int64_t>(hn::FindKnownFirstTrue(d, here));
    return;
  }
}

RowSums SumsOfRow(const WeightRowLogs& row) {
  // Float sums restart in each block, and distances are relative to a key of the block.
  constexpr std::int64_t kBlock = 512;
  const Floats d;
  RowSums sums;
  find_maximum(row, sums);
  if (sums.maximum_key < 0) return sums;
  for (std::int64_t block = 0; block < row.count; block += kBlock) {
    const std::int64_t end = std::min(block + kBlock, row.count);
    const std::int64_t near = std::clamp(sums.maximum_key, block, end);
    Vector distance = hn::Iota(d, static_cast<float>(block - near));
    Vector weights = hn::Zero(d);
    Vector logs = weights, distances = weights, squares = weights;
    for (std::int64_t k = block; k < end; k += kLanes) {
      const Vector x = hn::LoadU(d, row.log2_weights + k);
      const Vector w = fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, x);
      // x may be -inf where w is 0; the bound avoids 0 * -inf.
      const Vector log = fovea::HWY_NAMESPACE::simd_math::at_least(d, -127.0f, x);
      const Vector product = hn::Mul(w, distance);
      weights = hn::Add(weights, w);
      logs = hn::MulAdd(w, log, logs);
      distances = hn::Add(distances, product);
      squares = hn::MulAdd(product, distance, squares);
      distance = hn::Add(distance, hn::Set(d, static_cast<float>(kLanes)));
    }
    const auto total = [&](Vector x) HWY_ATTR {
      return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, x)));
    };
    const double w = total(weights);
    const double first = total(distances);
    const auto off = static_cast<double>(near - sums.maximum_key);
    sums.weights += w;
    sums.logs += total(logs);
    sums.distances += first + off * w;
    sums.squares += total(squares) + off * (2.0 * first + off * w);
  }
  return sums;
}

std::int64_t TopOfRow(const WeightRowLogs& row, std::int64_t most, std::int64_t* keys,
                      float* log2_weights) {
  const Floats d;
  std::int64_t found = 0;
  float least = kNoWeight;  // threshold that another key must exceed
  HWY_ALIGN float lanes[kLanes];
  for (std::int64_t k = 0; k < row.count; k += kLanes) {
    const Vector x = hn::LoadU(d, row.log2_weights + k);
    if (hn::AllFalse(d, hn::Gt(x, hn::Set(d, least)))) continue;
    hn::Store(x, d, lanes);
    for (std::int64_t i = 0; i < kLanes; ++i) {
      if (!(lanes[i] > least)) continue;
      std::int64_t at = found < most ? found++ : most - 1;
      for (; at > 0 && log2_weights[at - 1] < lanes[i]; --at) {
        log2_weights[at] = log2_weights[at - 1];
        keys[at] = keys[at - 1];
      }
      log2_weights[at] = lanes[i];
      keys[at] = k + i;
      if (found == most) least = log2_weights[most - 1];
    }
  }
  return found;
}

void WeightsOfRow(const WeightRowLogs& row, float* weights) {
  const Floats d;
  HWY_ALIGN float lanes[kLanes];
  for (std::int64_t k = 0; k < row.count; k += kLanes) {
    const Vector x = hn::LoadU(d, row.log2_weights + k);
    hn::Store(fovea::HWY_NAMESPACE::exp2_of_nonpositive(d, x), d, lanes);
    std::copy_n(lanes, std::min(kLanes, row.count - k), weights + k);
  }
}

}  // namespace fovea::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(SumsOfRow);
HWY_EXPORT(TopOfRow);
HWY_EXPORT(WeightsOfRow);

RowSums row_sums(const WeightRowLogs& row) { return HWY_DYNAMIC_DISPATCH(SumsOfRow)(row); }

std::int64_t row_top(const WeightRowLogs& row, std::int64_t most, std::int64_t* keys,
                     float* log2_weights) {
  return HWY_DYNAMIC_DISPATCH(TopOfRow)(row, most, keys, log2_weights);
}

void row_weights(const WeightRowLogs& row, float* weights) {
  HWY_DYNAMIC_DISPATCH(WeightsOfRow)(row, weights);
}

}  // namespace fovea::kernels
#endif
