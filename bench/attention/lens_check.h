// SPDX-License-Identifier: Apache-2.0
//
// What lenses saw in a measured call, against the reference's weights.

#pragma once

#include <span>

#include "fovea/lenses.h"
#include "fovea/reference.h"

#include "bench/attention/problem.h"

namespace fovea::cli {

/// How far the statistics and top keys of some rows, the first and last row of cells of their
/// heads' maps, and the sum of what keys received are off at most, as a share of the number itself.
/// `oracle` has these rows.
double lens_error(const BenchTensors& tensors, std::span<const reference::Row> rows,
                  const reference::Rows& oracle);

/// Weights and what they are summed up to have as many digits.
inline constexpr double kLensErrorAllowed = 2e-5;

}  // namespace fovea::cli
