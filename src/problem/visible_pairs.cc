// SPDX-License-Identifier: Apache-2.0
//
// The visible pairs of a problem (visible_pairs.h).

#include "problem/visible_pairs.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "core/element_type.h"

namespace fovea {

Mask visible_pairs(const AttentionOptions& options) {
  if (!options.score.bias.defined()) return options.mask;
  const TensorView& bias = options.score.bias;
  if (bias.rank() == 0 || bias.size() == 0) return options.mask;
  Tensor open(DType::kBool, bias.shape());
  const int last = bias.rank() - 1;
  const std::int64_t columns = bias.extent(last), stride = bias.strides()[last];
  Shape rows = bias.shape();
  rows[last] = 1;
  bool any_hidden = false;
  bool* to = open.span<bool>().data();
  with_element(bias.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_index(rows, [&](const Index& row) {
      const T* const from = static_cast<const T*>(bias.address(row));
      for (std::int64_t c = 0; c < columns; ++c, ++to) {
        *to = static_cast<double>(from[c * stride]) != -std::numeric_limits<double>::infinity();
        any_hidden = any_hidden || !*to;
      }
    });
  });
  return any_hidden ? options.mask & dense(std::move(open)) : options.mask;
}

}  // namespace fovea
