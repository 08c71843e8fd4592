// SPDX-License-Identifier: Apache-2.0
//
// The decoding kernel computes the same bits whether it processes four rows at a time or not. The
// engine chooses by the CPU, so the other tests of a machine run only one of the two.

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

#include "engine/call/workspace.h"
#include "kernels/decode/decode.h"
#include "kernels/simd/target.h"
#include "support/random_problem.h"

namespace fovea::kernels {
namespace {

using test::RandomProblem;

struct Case {
  DType dtype = DType::kFloat32;
  std::int64_t rows = 4, dim = 64, value_dim = 64, keys = 300;
  std::int64_t stride = 0;      // of keys and values beyond their dimensions
  std::int64_t block_size = 0;  // 0: a contiguous cache
  bool window = false;          // hides the first keys
  bool cached = false;
};

/// Returns maximum, sum and context of all query heads, which share one key head, and their
/// weights.
std::vector<float> decode(const Case& c, bool four_rows) {
  RandomProblem problem({1, c.rows, 1, 1, c.keys}, c.dim + c.stride, c.value_dim + c.stride, 5);
  for (Tensor* tensor : {&problem.query, &problem.key, &problem.value}) {
    *tensor = convert(*tensor, c.dtype);
  }
  const auto rows_of = [](const TensorView& tensor) {
    return InputRows{tensor.data(), tensor.extent(3), tensor.dtype()};
  };
  AttentionOptions options;
  if (c.window) options.mask = window(c.keys / 2, 0);
  const DecodeSetup setup{.options = &options,
                          .types = {c.dtype, c.dtype, c.dtype},
                          .head_dim = c.dim,
                          .value_dim = c.value_dim,
                          .q_heads = c.rows,
                          .group = c.rows,
                          .most_queries = 1,
                          .chunk_keys = 256,
                          .scale = 0.125,
                          .four_rows = four_rows};
  // Blocks in reverse order: block b holds the keys of block blocks.size() - 1 - b of the tensor.
  std::vector<std::int64_t> blocks(
      static_cast<std::size_t>(c.block_size > 0 ? c.keys / c.block_size : 0));
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  DecodeItem item;
  item.origin.offset = c.keys - 1;
  item.q_len = 1;
  item.kv_len = item.key_end = c.keys;
  item.query = rows_of(problem.query);
  item.query_head_stride = c.dim + c.stride;
  item.cached = c.cached;
  for (const auto& [cache, tensor] :
       {std::pair(&item.key, &problem.key), std::pair(&item.value, &problem.value)}) {
    cache->rows = rows_of(*tensor);
    if (blocks.empty()) continue;
    cache->blocks = blocks.data();
    cache->table_stride = 1;
    cache->block_size = c.block_size;
    cache->block_stride = c.block_size * tensor->extent(3);
  }
  std::vector<float> found(static_cast<std::size_t>(c.rows * (c.value_dim + 2 + c.keys)));
  const auto at = [&](std::int64_t row) { return found.data() + c.rows * row; };
  const engine::Workspace scratch({}, decode_scratch_bytes(setup));
  decode_item(setup, item, {at(0), at(1), at(2)}, scratch.data(), {});
  const std::vector<float> log2_sum(static_cast<std::size_t>(c.rows), 3.0f);
  decode_weights_item(
      setup, item, {.log2_sum = log2_sum.data(), .weights = at(2 + c.value_dim), .stride = c.keys},
      scratch.data(), {});
  return found;
}

class AttentionDecodeKernel : public testing::Test {
 protected:
  void SetUp() override {
    if (!active_target().starts_with("AVX3") && !active_target().starts_with("AMX")) {
      GTEST_SKIP() << "only AVX-512 has loops over four rows";
    }
  }
  static void expect_same_bits(const Case& c) {
    EXPECT_EQ(decode(c, true), decode(c, false))
        << dtype_name(c.dtype) << ", " << c.rows << " rows, D " << c.dim << "/" << c.value_dim
        << ", " << c.keys << " keys, stride + " << c.stride << ", blocks of " << c.block_size;
  }
};

TEST_F(AttentionDecodeKernel, FourRowsAtATimeChangeNoBits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t rows : {1, 3, 4, 5, 6, 7, 8, 11}) {
      for (const std::int64_t dim : {0, 5, 16, 61, 64, 80, 96, 128, 192, 256, 300}) {
        for (const std::int64_t keys : {1, 7, 259, 600}) {
          expect_same_bits({.dtype = dtype,
                            .rows = rows,
                            .dim = dim,
                            .value_dim = rows % 2 == 0 ? dim + 3 : dim,
                            .keys = keys});
        }
      }
    }
  }
}

TEST_F(AttentionDecodeKernel, FourRowsAtATimeInEveryLayout) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t rows : {3, 4, 6}) {
      for (const std::int64_t dim : {64, 96, 128}) {
        Case c{.dtype = dtype, .rows = rows, .dim = dim, .value_dim = dim, .keys = 640};
        c.stride = 24;
        expect_same_bits(c);
        c.window = true;
        expect_same_bits(c);
        // Blocks of less and of more than 16 KB.
        for (const std::int64_t block_size : {16, 128}) {
          c.stride = 0;
          c.block_size = block_size;
          expect_same_bits(c);
        }
        c.block_size = 0;
        c.cached = true;
        expect_same_bits(c);
      }
    }
  }
}

}  // namespace
}  // namespace fovea::kernels
