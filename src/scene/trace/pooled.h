// SPDX-License-Identifier: Apache-2.0
//
// Mean pooling of weight matrices that are too large to display.

#pragma once

#include "fovea/tensor.h"

namespace fovea::scene {

/// Returns the means of a grid of `rows` x `columns` cells (at most the size of the matrix). With R
/// cells for n rows, cell r covers rows floor(r n / R) to floor((r + 1) n / R) - 1; columns follow
/// the same rule. Masked elements (-inf) are excluded; a cell with only masked elements is -inf.
Tensor pooled_mean(const TensorView& matrix, std::int64_t rows, std::int64_t columns);

}  // namespace fovea::scene
