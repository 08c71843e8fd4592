// SPDX-License-Identifier: Apache-2.0
//
// Comparison of the lens results of a measured call with the weights of the reference.

#pragma once

#include <span>

#include "fovea/lenses.h"
#include "fovea/reference.h"

#include "bench/attention/problem.h"

namespace fovea::cli {

/// Returns the largest relative error of the lens results: statistics and top keys of `rows`,
/// the first and last row of map cells of the heads that contain `rows`, and for every head the sum
/// of received weights. `oracle` holds the reference results of `rows`.
double lens_error(const BenchTensors& tensors, std::span<const reference::Row> rows,
                  const reference::Rows& oracle);

/// Applies to single weights and to sums of weights, which are equally accurate.
inline constexpr double kLensErrorAllowed = 2e-5;

}  // namespace fovea::cli
