// SPDX-License-Identifier: Apache-2.0
//
// Dispatch from a tensor's run-time DType to the C++ type of its elements.

#pragma once

#include <cstdint>

#include "fovea/half.h"
#include "fovea/tensor.h"

namespace fovea {

/// Calls `visit` with a zero of the C++ type that stores elements of `dtype`.
template <class Visitor>
auto with_element(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat16:
      return visit(Float16{});
    case DType::kBFloat16:
      return visit(BFloat16{});
    case DType::kInt64:
      return visit(std::int64_t{});
    case DType::kBool:
      return visit(bool{});
    case DType::kFloat64:
      break;
  }
  return visit(double{});
}

}  // namespace fovea
