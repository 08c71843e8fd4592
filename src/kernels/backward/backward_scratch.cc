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
  value_keys = arena.take<float>(f.block_keys * s.value_steps);
  grad_panel = arena.take<float>(s.value_steps * f.lanes);
  key_rows = arena.take<float>(s.block_steps * s.key_width);
  query_rows = arena.take<float>(f.lanes * s.key_width);
  grad_rows = arena.take<float>(f.lanes * s.value_width);
  gradients = arena.take<float>((s.rows_are_pairs ? f.block_keys : f.tile_rows) * f.lanes);
  if (s.rows_are_pairs) {
    weight_rows = forward.scores;
    gradient_rows = gradients;
  } else {
    weight_rows = arena.take<float>(f.block_keys * s.row_stride);
    gradient_rows = arena.take<float>(f.block_keys * s.row_stride);
  }
  query_sums = arena.take<float>(f.lanes * s.key_width);
  key_sums = arena.take<float>(f.block_keys * s.key_width);
  value_sums = arena.take<float>(f.block_keys * s.value_width);
  derivative = arena.take<float>(s.derivative ? f.tile_rows * f.lanes : 0);
  log2_sum = arena.take<float>(f.lanes);
  delta = arena.take<float>(f.lanes);
  bias = arena.take<float>(s.bias_rows * s.bias_columns);
  by_distance = arena.take<float>(s.distances);
  relevance = arena.take<float>(f.block_keys * s.relevance);
  doubtful = arena.take<std::int32_t>(f.lanes);
  return before + arena.used();
}

}  // namespace fovea::kernels
