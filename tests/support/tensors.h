// SPDX-License-Identifier: Apache-2.0
//
// Converts tensors to vectors and vectors to tensors.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::test {

/// Returns the elements, last dimension fastest.
template <class T>
std::vector<T> elements(const Tensor& tensor) {
  const auto span = tensor.span<T>();
  return {span.begin(), span.end()};
}

/// Returns a one-dimensional int64 tensor.
inline Tensor ids(const std::vector<std::int64_t>& values) {
  return Tensor::from<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace fovea::test
