// SPDX-License-Identifier: Apache-2.0
//
// A large matrix of weights made small enough to be looked at.

#pragma once

#include "fovea/tensor.h"

namespace fovea::scene {

/// The mean of each cell of `rows` x `columns` cells (at most as many as the matrix has): of R
/// cells over n rows, cell r covers rows floor(r n / R) to floor((r + 1) n / R); columns alike.
/// Masked elements (-inf) do not count; a cell of nothing else is -inf.
Tensor pooled_mean(const TensorView& matrix, std::int64_t rows, std::int64_t columns);

}  // namespace fovea::scene
