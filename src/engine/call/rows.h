// SPDX-License-Identifier: Apache-2.0
//
// Conversion from tensors to the row descriptors of the kernels.

#pragma once

#include <cstdint>

#include "fovea/tensor.h"

#include "kernels/forward/forward.h"
#include "problem/broadcast.h"
#include "problem/problem_shape.h"

namespace fovea::engine {

/// Returns the rows of a head, starting at `position`. The result is null for an undefined tensor.
template <class Pointee>
kernels::RowsOf<Pointee> rows_of(const BasicTensorView<Pointee>& tensor, std::int64_t batch,
                                 std::int64_t head, std::int64_t position) {
  if (!tensor.defined() || tensor.data() == nullptr) return {};
  const Strides& strides = tensor.strides();
  const kernels::RowsOf<Pointee> elements{tensor.data(), 1, tensor.dtype()};
  return {elements.row(batch * strides[0] + head * strides[1] + position * strides[2]), strides[2],
          tensor.dtype()};
}

/// Returns the bias of a head of a sequence. `bias` is undefined or broadcasts to
/// [batch, q_heads, q_len, kv_len].
inline kernels::BiasRows bias_rows(const TensorView& bias, const SequenceSpan& span,
                                   std::int64_t head) {
  if (!bias.defined()) return {};
  const auto [batch, q_head, query, key] = broadcast_strides(bias);
  return {.offset =
              span.batch * batch + head * q_head + span.query_start * query + span.key_start * key,
          .head_stride = q_head,
          .query_stride = query,
          .key_stride = key};
}

}  // namespace fovea::engine
