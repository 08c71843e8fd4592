// SPDX-License-Identifier: Apache-2.0
//
// The decoding kernel computes the same bits whether rows are processed in fours or in pairs. The
// engine chooses by CPU, so that one of them would be tested on no machine.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/tensor.h"

#include "engine/call/workspace.h"
#include "kernels/decode/decode.h"
#include "kernels/simd/target.h"
#include "support/random_problem.h"

namespace fovea::kernels {
namespace {

using test::RandomProblem;

InputRows rows_of(const TensorView& tensor) {
  return {tensor.data(), tensor.extent(3), tensor.dtype()};
}

/// Returns maximum, sum and context of all query heads, which share one key head.
std::vector<float> decode(const RandomProblem& problem, bool fours) {
  const std::int64_t rows = problem.query.extent(1);
  const std::int64_t keys = problem.key.extent(2);
  const AttentionOptions options;
  const DecodeSetup setup{
      .options = &options,
      .types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()},
      .head_dim = problem.query.extent(3),
      .value_dim = problem.value.extent(3),
      .q_heads = rows,
      .group = rows,
      .most_queries = 1,
      .chunk_keys = 256,
      .scale = 0.125,
      .fours = fours};
  DecodeItem item;
  item.q_len = 1;
  item.kv_len = keys;
  item.query = rows_of(problem.query);
  item.query_head_stride = problem.query.extent(3);
  item.key.rows = rows_of(problem.key);
  item.value.rows = rows_of(problem.value);
  item.key_end = keys;
  std::vector<float> found(static_cast<std::size_t>(rows * (setup.value_dim + 2)));
  const DecodePart part{found.data(), found.data() + rows, found.data() + 2 * rows};
  const engine::Workspace scratch({}, decode_scratch_bytes(setup));
  decode_item(setup, item, part, scratch.data(), {});
  return found;
}

TEST(DecodeKernel, FoursHaveTheBitsOfPairs) {
  choose_target();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t rows : {1, 3, 4, 5, 6, 7, 8, 11}) {
      for (const std::int64_t dim : {0, 5, 16, 61, 64, 96, 127, 128, 192, 256, 300}) {
        for (const std::int64_t keys : {1, 7, 259, 600}) {
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << rows << " rows, " << dim
                                          << " dimensions, " << keys << " keys");
          RandomProblem problem({1, rows, 1, 1, keys}, dim, dim + 3, 5);
          for (Tensor* tensor : {&problem.query, &problem.key, &problem.value}) {
            *tensor = convert(*tensor, dtype);
          }
          ASSERT_EQ(decode(problem, true), decode(problem, false));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::kernels
