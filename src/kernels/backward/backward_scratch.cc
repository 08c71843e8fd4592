// SPDX-License-Identifier: Apache-2.0
//
// Layout of the scratch memory of the backward pass (backward_scratch.h).

#include "kernels/backward/backward_scratch.h"

#include "kernels/simd/arena.h"

namespace fovea::kernels {

std::size_t BackwardScratch::lay_out(std::byte* base, const BackwardScratchSizes& s) {
  const ForwardScratchSizes& f = s.forward;
  const std::size_t before = forward.lay_out(base, f);
  Arena arena(base == nullptr ? nullptr : base + before);
  value_keys = arena.take<float>(s.value_keys);
  grad_panel = arena.take<float>(s.grad_panel);
  key_rows = arena.take<float>(s.key_rows);
  query_rows = arena.take<float>(s.query_rows);
  grad_rows = arena.take<float>(s.grad_rows);
  gradients = arena.take<float>(s.gradients);
  const auto own = [&](std::int64_t floats, float* in_place) {
    return floats > 0 ? arena.take<float>(floats) : in_place;
  };
  weight_rows = own(s.weight_rows, forward.scores);
  gradient_rows = own(s.gradient_rows, gradients);
  gradient_pairs = own(s.gradient_pairs, forward.scores);
  query_sums = arena.take<float>(s.query_sums);
  key_sums = arena.take<float>(s.key_sums);
  value_sums = arena.take<float>(s.value_sums);
  derivative = arena.take<float>(s.derivative);
  log2_sum = arena.take<float>(s.queries);
  delta = arena.take<float>(s.queries);
  bias = arena.take<float>(s.bias_rows * s.bias_columns);
  by_distance = arena.take<float>(s.distances);
  relevance = arena.take<float>(f.block_keys * s.relevance);
  doubtful = arena.take<std::int32_t>(s.queries);
  return before + arena.used();
}

}  // namespace fovea::kernels
