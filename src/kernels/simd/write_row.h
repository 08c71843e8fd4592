// SPDX-License-Identifier: Apache-2.0
//
// Rounding of float32 numbers to the type of a tensor, for code outside the kernels.

#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::kernels {

/// Writes `count` floats to `to`, rounded to `dtype`.
void write_row(const float* from, std::int64_t count, DType dtype, void* to);

}  // namespace fovea::kernels
