// SPDX-License-Identifier: Apache-2.0
//
// attention_decode for a few queries against a contiguous or paged cache: accuracy by the 1x rule,
// the same bits for any number of threads and, in float32, for either kind of cache.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/error.h"
#include "fovea/mask.h"
#include "fovea/paged_key_value.h"
#include "fovea/random.h"

#include "kernels/decode/decode_bf16.h"
#include "support/blocks.h"
#include "support/forward.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

Forward decode(const reference::Inputs& in, const AttentionOptions& options = {}) {
  const ProblemShape shape = shape_of(in);
  Forward result{
      Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len, in.value.extent(3)}),
      Tensor(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len})};
  for (Tensor* tensor : {&result.context, &result.lse}) {
    std::ranges::fill(tensor->span<float>(), kUntouched);
  }
  attention_decode(in.query, in.key, in.value, options, {result.context, result.lse});
  return result;
}

/// Returns true if the kernel may round weights to bfloat16, that is, if it multiplies bfloat16
/// pairs.
bool rounds_weights(const reference::Inputs& in) {
  kernels::DecodeSetup setup;
  setup.types = {in.query.dtype(), in.key.dtype(), in.value.dtype()};
  return kernels::bf16_decode(setup) != nullptr;
}

/// Checks a float32 context by the 1x rule of float32, also for 16-bit inputs, which convert to
/// float32 exactly. Where weights are rounded, the 1x rule of bfloat16 applies.
void expect_decode_exact(const reference::Inputs& in, const AttentionOptions& options = {},
                         RowList rows = {}) {
  if (rows.empty()) rows = all_rows(shape_of(in));
  const DType type = rounds_weights(in) ? DType::kBFloat16 : DType::kFloat32;
  const Forward found = rows_of(decode(in, options), rows);
  const Forward exact = oracle(in, options, rows);
  const Forward plain = by_reference(in, options, rows, type);
  const Allowance allowance = allowance_of(in, options, rows, exact, type);
  EXPECT_TRUE(as_exact_as(found.context, plain.context, exact.context, allowance.context));
  EXPECT_TRUE(as_exact_as(found.lse, plain.lse, exact.lse, allowance.lse));
}

RandomProblem in_type(DType dtype, const ProblemShape& shape, std::int64_t head_dim,
                      std::int64_t value_dim) {
  RandomProblem p(shape, head_dim, value_dim, 11);
  for (Tensor* tensor : {&p.query, &p.key, &p.value}) *tensor = convert(*tensor, dtype);
  return p;
}
RandomProblem in_float32(const ProblemShape& shape, std::int64_t head_dim, std::int64_t value_dim) {
  return in_type(DType::kFloat32, shape, head_dim, value_dim);
}

TEST(AttentionDecode, EverySmallShape) {
  for (const std::int64_t q_len : {1, 2, 3, 5}) {
    for (std::int64_t kv_len = 0; kv_len <= 37; kv_len += kv_len < 20 ? 1 : 17) {
      for (const std::int64_t dim : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64}) {
        SCOPED_TRACE(testing::Message() << q_len << " x " << kv_len << " x " << dim);
        expect_decode_exact(in_float32({1, 2, 1, q_len, kv_len}, dim, dim).inputs());
      }
    }
  }
}

TEST(AttentionDecode, ZeroDimensions) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [head_dim, value_dim] : {std::pair(0, 6), std::pair(5, 0), std::pair(0, 0)}) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(dtype) << ", " << head_dim << ", " << value_dim);
      expect_decode_exact(in_type(dtype, {1, 4, 2, 2, 19}, head_dim, value_dim).inputs());
    }
  }
}

TEST(AttentionDecode, EveryTypeAndMixedTypes) {
  for (const DType query : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const DType cache : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const std::int64_t dim : {1, 5, 16, 37, 64, 128, 136}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(query) << ", " << dtype_name(cache) << ", " << dim);
        RandomProblem p = in_type(cache, {1, 8, 2, 1, 133}, dim, dim);
        p.query = convert(p.query, query);
        expect_decode_exact(p.inputs());
        p.value = convert(p.value, DType::kFloat32);
        expect_decode_exact(p.inputs(), {.mask = window(70, -1), .score = {.softcap = 2.0}});
      }
    }
  }
}

TEST(AttentionDecode, WritesTheContextInAnyType) {
  const RandomProblem p = in_float32({1, 4, 2, 1, 90}, 16, 12);
  const Forward expected = decode(p.inputs());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Tensor context(dtype, expected.context.shape());
    attention_decode(p.query, p.key, p.value, {}, {.context = context});
    for_each_index(context.shape(), [&](const Index& at) {
      EXPECT_NEAR(context.value(at), expected.context.value(at),
                  std::abs(expected.context.value(at)) * rounding_of(dtype) + 1e-7);
    });
  }
}

TEST(AttentionDecode, Bfloat16Pairs) {
  for (const std::int64_t rows : {2, 3, 4, 5, 7, 8, 11}) {
    for (const std::int64_t dim : {1, 2, 31, 32, 33, 63, 65, 128, 129, 160, 256, 257, 300}) {
      for (const std::int64_t kv_len : {1, 2, 5, 33, 100}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << dim << ", " << kv_len << " keys");
        const RandomProblem p =
            in_type(DType::kBFloat16, {1, rows, 1, 1, kv_len}, dim, (dim + 37) % 290 + 1);
        expect_decode_exact(p.inputs());
      }
    }
  }
}

TEST(AttentionDecode, SeveralRowsWhoseQueriesDoNotFitInRegisters) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7}) {
      for (const std::int64_t dim : {65, 96, 128, 135, 257, 300, 513}) {
        for (const std::int64_t kv_len : {1, 4, 70}) {
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << rows << " rows, " << dim
                                          << ", " << kv_len << " keys");
          expect_decode_exact(in_type(dtype, {1, rows, 1, 1, kv_len}, dim, 9).inputs());
        }
      }
    }
  }
}

TEST(AttentionDecode, KeysThatArePrefetched) {
  // Over 1 MB of keys and values per head, which AVX2 prefetches, with an incomplete last group.
  struct Case {
    DType dtype;
    std::int64_t rows, dim, keys;
  };
  for (const auto& [dtype, rows, dim, keys] : {Case{DType::kFloat32, 3, 64, 4203},
                                               {DType::kFloat32, 4, 65, 4101},
                                               {DType::kFloat32, 6, 130, 2051},
                                               {DType::kBFloat16, 1, 130, 4101},
                                               {DType::kFloat16, 1, 131, 4103},
                                               {DType::kFloat16, 4, 128, 4098}}) {
    SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << rows << " rows, " << dim << ", "
                                    << keys << " keys");
    expect_decode_exact(in_type(dtype, {1, 2 * rows, 2, 1, keys}, dim, dim).inputs());
  }
}

TEST(AttentionDecode, GroupedHeadsAndMixedDims) {
  for (const auto& [q_heads, kv_heads] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {4, 4}, {8, 2}, {12, 2}, {5, 1}, {32, 8}}) {
    for (const auto& [head_dim, value_dim] :
         {std::pair<std::int64_t, std::int64_t>{128, 128}, {80, 40}, {40, 200}, {256, 96}}) {
      SCOPED_TRACE(testing::Message()
                   << q_heads << "/" << kv_heads << " heads, " << head_dim << "/" << value_dim);
      const RandomProblem p = in_float32({2, q_heads, kv_heads, 1, 700}, head_dim, value_dim);
      expect_decode_exact(p.inputs());
    }
  }
}

TEST(AttentionDecode, LongCachesInSeveralParts) {
  for (const std::int64_t kv_len : {2047, 4096, 8193, 20011}) {
    SCOPED_TRACE(testing::Message() << "kv_len " << kv_len);
    const RandomProblem p = in_float32({1, 4, 2, 2, kv_len}, 64, 64);
    expect_decode_exact(p.inputs(), {.mask = causal()});
    expect_decode_exact(p.inputs(), {.mask = window(3000, 0)});
  }
}

TEST(AttentionDecode, MoreThanSixteenParts) {
  // A part has 128 keys of 4,096 elements.
  for (const std::int64_t kv_len : {2048, 2049, 2500}) {
    SCOPED_TRACE(testing::Message() << "kv_len " << kv_len);
    const RandomProblem p = in_float32({1, 2, 1, 1, kv_len}, 4096, 131);
    expect_decode_exact(p.inputs());
    expect_decode_exact(p.inputs(), {.mask = window(300, 0), .score = {.sinks = {0.5, -1.0}}});
  }
}

std::vector<AttentionOptions> many_options(std::int64_t q_heads, std::int64_t q_len,
                                           std::int64_t kv_len) {
  const Tensor open = convert(RandomState(2).randint(0, 2, {q_len, kv_len}), DType::kBool);
  const Tensor ids = RandomState(3).randint(0, 3, {kv_len});
  const Tensor query_ids = RandomState(4).randint(0, 3, {q_len});
  Tensor bias = RandomState(5).randn({q_heads, q_len, kv_len});
  bias.at<double>({0, 0, 3}) = -HUGE_VAL;
  const auto heads = static_cast<std::size_t>(q_heads);
  std::vector<double> sinks(heads);
  std::iota(sinks.begin(), sinks.end(), -1.0);
  return {
      {.mask = causal()},
      {.mask = window(100, 3), .alignment = Alignment::offset(kv_len - 40)},
      {.mask = prefix(17)},
      {.mask = key_lengths({kv_len - 5, 2})},
      {.mask = dense(Tensor(open))},
      {.mask = documents(query_ids, ids) | prefix(2)},
      {.mask = causal() & dense(Tensor(open)), .alignment = Alignment::top_left()},
      {.score = {.softcap = 3.0}},
      {.score = {.scale = -0.3}},
      {.score = {.scale = 0.0}},
      {.score = {.bias = Tensor(bias)}},
      {.score = {.bias = convert(bias, DType::kFloat32)}},
      {.mask = causal(), .score = {.alibi = Alibi{}}},
      {.score = {.relative = RelativeTable{RandomState(6).randn({8, q_heads}), true, 50}}},
      {.mask = window(9, -1), .score = {.softcap = 1.0, .alibi = Alibi{}, .sinks = sinks}},
      {.score = {.sinks = sinks}},
  };
}

TEST(AttentionDecode, EveryOption) {
  const ProblemShape shape{2, 4, 2, 3, 600};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const RandomProblem p = in_type(dtype, shape, 24, 21);
    int number = 0;
    for (const AttentionOptions& options : many_options(shape.q_heads, shape.q_len, shape.kv_len)) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", options " << number++);
      expect_decode_exact(p.inputs(), options);
    }
  }
}

/// Biases are added by vectors and, after the last vector or with strides, one by one.
TEST(AttentionDecode, BiasesHideEveryKeyOfAVectorAndOfItsRemainder) {
  const ProblemShape shape{1, 4, 2, 2, 41};
  const RandomProblem clean = in_type(DType::kFloat32, shape, 24, 21);
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(dtype_name(type));
    for (std::int64_t hidden = 0; hidden < shape.kv_len; ++hidden) {
      Tensor bias = RandomState(8).randn({shape.q_len, shape.kv_len});
      for (std::int64_t q = 0; q < shape.q_len; ++q) set_value(bias, {q, hidden}, -HUGE_VAL);
      set_value(bias, {0, (hidden + 1) % shape.kv_len}, -1e38);  // finite, but of weight 0
      bias = convert(bias, type == DType::kFloat16 ? DType::kFloat32 : type);
      if (type == DType::kFloat16) bias = convert(bias, DType::kFloat16);
      RandomProblem poisoned = clean;
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        for (std::int64_t c = 0; c < 24; ++c) {
          set_value(poisoned.key, {0, head, hidden, c}, std::nan(""));
        }
        set_value(poisoned.value, {0, head, hidden, 7}, HUGE_VAL);
      }
      const Forward expected = decode(clean.inputs(), {.score = {.bias = Tensor(bias)}});
      EXPECT_TRUE(
          same_bits(decode(poisoned.inputs(), {.score = {.bias = Tensor(bias)}}), expected));
      Tensor wide(bias.dtype(), {shape.q_len, 2 * shape.kv_len});
      for_each_index(bias.shape(), [&](const Index& at) {
        set_value(wide, {at[0], 2 * at[1]}, bias.value(at));
      });
      const TensorView strided(wide.view().data(), bias.dtype(), bias.shape(),
                               {2 * shape.kv_len, 2});
      EXPECT_TRUE(same_bits(decode(clean.inputs(), {.score = {.bias = strided}}), expected));
      if (hidden % 8 == 3) expect_decode_exact(clean.inputs(), {.score = {.bias = Tensor(bias)}});
    }
  }
}

TEST(AttentionDecode, AnyNumberOfThreadsGivesTheSameBits) {
  const ProblemShape shape{2, 4, 2, 2, 9000};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const RandomProblem p = in_type(dtype, shape, 64, 48);
    for (AttentionOptions options : many_options(shape.q_heads, shape.q_len, shape.kv_len)) {
      options.execution.threads = 1;
      const Forward one = decode(p.inputs(), options);
      for (const int threads : {2, 3, 8}) {
        options.execution.threads = threads;
        EXPECT_TRUE(same_bits(decode(p.inputs(), options), one)) << threads;
      }
    }
  }
}

TEST(AttentionDecode, MatchesForwardWithinTheAllowance) {
  const RandomProblem p = in_float32({1, 8, 2, 1, 5000}, 128, 128);
  const Forward forward = test::forward(p.inputs());
  const Forward found = decode(p.inputs());
  const RowList rows = all_rows(shape_of(p.inputs()));
  const Forward exact = oracle(p.inputs(), {}, rows);
  const Allowance allowance = allowance_of(p.inputs(), {}, rows, exact, DType::kFloat32);
  EXPECT_LE(max_difference(found.context, forward.context), 2 * allowance.context);
  EXPECT_LE(max_difference(found.lse, forward.lse), 2 * allowance.lse);
}

TEST(AttentionDecode, MaskedNanIsIgnoredAndVisibleNanSpreads) {
  const ProblemShape shape{1, 4, 2, 2, 300};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const RandomProblem clean = in_type(dtype, shape, 16, 12);
    const AttentionOptions options{.mask = window(120, 0)};
    const Forward expected = decode(clean.inputs(), options);
    for (const float number : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      RandomProblem hidden = clean;
      for (const std::int64_t key : {0, 99, 176}) {  // the windows begin at 178 and 179
        for (std::int64_t c = 0; c < 12; ++c) set_value(hidden.value, {0, 1, key, c}, number);
        set_value(hidden.key, {0, 1, key, 3}, number);
      }
      EXPECT_TRUE(same_bits(decode(hidden.inputs(), options), expected));
      RandomProblem seen = clean;
      set_value(seen.value, {0, 1, 178, 5}, number);  // visible to the first query only
      const Forward found = decode(seen.inputs(), options);
      for (const reference::Row& row : all_rows(shape)) {
        for (std::int64_t c = 0; c < 12; ++c) {
          const Index at{0, row.head, row.query, c};
          const bool spreads = row.head >= 2 && row.query == 0 && c == 5;
          EXPECT_EQ(std::isfinite(found.context.at<float>(at)), !spreads) << to_string(at);
          if (spreads) continue;
          EXPECT_EQ(found.context.at<float>(at), expected.context.at<float>(at));
        }
      }
    }
  }
}

TEST(AttentionDecode, NoKeys) {
  const RandomProblem p = in_float32({1, 2, 1, 2, 0}, 8, 6);
  const Forward found = decode(p.inputs(), {.score = {.sinks = {0.5, -HUGE_VAL}}});
  for (const float x : found.context.span<float>()) EXPECT_EQ(x, 0.0F);
  EXPECT_EQ(found.lse.at<float>({0, 0, 1}), 0.5F);
  EXPECT_EQ(found.lse.at<float>({0, 1, 1}), -HUGE_VALF);
}

TEST(AttentionDecode, CallersWorkspace) {
  const RandomProblem p = in_float32({1, 8, 2, 1, 20000}, 64, 64);
  const Forward expected = decode(p.inputs());
  const std::size_t bytes = attention_decode_workspace(p.query, p.key, p.value, {});
  std::vector<std::byte> memory(bytes + 1);
  AttentionOptions options;
  options.execution.workspace = std::span(memory).subspan(1);
  EXPECT_TRUE(same_bits(decode(p.inputs(), options), expected));
  options.execution.workspace = std::span(memory).first(100);
  EXPECT_THROW(decode(p.inputs(), options), InvalidArgument);
}

// ---- Paged caches -------------------------------------------------------------------------------

Forward decode_blocks(const Tensor& query, const PagedKeyValue& cache,
                      const AttentionOptions& options) {
  Forward result{Tensor(DType::kFloat32,
                        {query.extent(0), query.extent(1), query.extent(2), cache.value.extent(3)}),
                 Tensor(DType::kFloat32, {query.extent(0), query.extent(1), query.extent(2)})};
  attention_decode(query, cache, options, {result.context, result.lse});
  return result;
}

TEST(AttentionDecode, PagedMatchesContiguousBitForBit) {
  const ProblemShape shape{3, 4, 2, 2, 700};
  const RandomProblem p = in_float32(shape, 24, 20);
  const std::vector<std::int64_t> lengths{700, 0, 333};
  for (const std::int64_t block_size : {1, 3, 16, 128, 1000}) {
    const Blocks blocks(p, block_size, lengths, DType::kFloat32);
    for (AttentionOptions options :
         {AttentionOptions{}, AttentionOptions{.mask = causal()},
          AttentionOptions{.mask = window(100, 0)},
          AttentionOptions{.score = {.softcap = 2.0, .alibi = Alibi{}}}}) {
      for (const int threads : {1, 3}) {
        options.execution.threads = threads;
        AttentionOptions in_one_piece = options;
        in_one_piece.mask = options.mask & key_lengths(lengths);
        SCOPED_TRACE(testing::Message()
                     << "blocks of " << block_size << ", " << options.mask.to_string());
        EXPECT_TRUE(same_bits(decode_blocks(p.query, blocks.view(), options),
                              decode(p.inputs(), in_one_piece)));
      }
    }
  }
}

// Pairs of bfloat16 start at a block boundary, for any number of heads per work item.
TEST(AttentionDecode, Paged16BitCachesGiveTheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const RandomProblem p = in_type(dtype, {1, 8, 4, 2, 9001}, 40, 33);
    const Blocks blocks(p, 7, {9001}, dtype);
    AttentionOptions options{.mask = causal()};
    options.execution.threads = 1;
    const Forward one = decode_blocks(p.query, blocks.view(), options);
    AttentionOptions in_one_piece = options;
    in_one_piece.mask = options.mask & key_lengths({9001});
    const Forward whole = decode(p.inputs(), in_one_piece);
    EXPECT_LT(max_difference(one.context, whole.context), 1e-3);
    for (const int threads : {2, 3, 16}) {
      options.execution.threads = threads;
      EXPECT_TRUE(same_bits(decode_blocks(p.query, blocks.view(), options), one)) << threads;
    }
  }
}

// The heads of an item depend on the number of threads; a head's bits must not depend on the keys
// that the other heads hide.
TEST(AttentionDecode, MasksThatDifferByHeadGiveTheSameBitsForAnyNumberOfThreads) {
  constexpr std::int64_t kHeads = 8, kKeys = 2000;
  Tensor open(DType::kBool, {kHeads, 2, kKeys});
  fill(open, 1.0);
  for (std::int64_t head = 1; head < kHeads; ++head) {
    set_value(open, {head, head % 2, 5 * head}, 0.0);
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const RandomProblem p = in_type(dtype, {1, kHeads, kHeads, 2, kKeys}, 64, 64);
    const Blocks blocks(p, 16, {kKeys}, dtype);
    AttentionOptions options{.mask = causal() & dense(open)};
    options.execution.threads = 1;
    const Forward one = decode_blocks(p.query, blocks.view(), options);
    for (const int threads : {2, 3, 8}) {
      options.execution.threads = threads;
      EXPECT_TRUE(same_bits(decode_blocks(p.query, blocks.view(), options), one)) << threads;
    }
  }
}

// The number of heads processed together in a block depends on the number of threads.
TEST(AttentionDecode, LongPagedCachesMatchContiguousBitForBit) {
  for (const auto& [q_heads, kv_heads] : {std::pair(5, 5), std::pair(14, 7), std::pair(18, 2)}) {
    const ProblemShape shape{2, q_heads, kv_heads, 1, 9000};
    const RandomProblem p = in_float32(shape, 12, 8);
    const std::vector<std::int64_t> lengths{9000, 8200};
    const Blocks blocks(p, 16, lengths, DType::kFloat32);
    const Forward expected = decode(p.inputs(), {.mask = key_lengths(lengths)});
    for (const int threads : {1, 2, 3, 16}) {
      SCOPED_TRACE(testing::Message() << q_heads << " heads, " << threads << " threads");
      AttentionOptions options;
      options.execution.threads = threads;
      EXPECT_TRUE(same_bits(decode_blocks(p.query, blocks.view(), options), expected));
    }
  }
}

TEST(AttentionDecode, PagedWithoutBatchItems) {
  const RandomProblem p = in_float32({2, 4, 2, 1, 50}, 16, 16);
  const Blocks blocks(p, 16, {50, 40}, DType::kFloat32);
  const Tensor table(DType::kInt64, {0, 4}), lengths(DType::kInt64, {0});
  PagedKeyValue none = blocks.view();
  none.block_table = table;
  none.lengths = lengths;
  const Tensor query(DType::kFloat32, {0, 4, 1, 16});
  Tensor context(DType::kFloat32, {0, 4, 1, 16});
  EXPECT_EQ(message_of([&] { attention_decode(query, none, {}, {.context = context}); }),
            "no error");
}

TEST(AttentionDecode, PagedLayoutOfOtherLibraries) {
  const RandomProblem p = in_float32({2, 4, 2, 1, 50}, 16, 16);
  const Blocks blocks(p, 8, {50, 29}, DType::kFloat32);
  // [blocks, block_size, kv_heads, dim]
  const Tensor key(blocks.key.view().transposed(1, 2));
  const Tensor value(blocks.value.view().transposed(1, 2));
  PagedKeyValue other = blocks.view();
  other.key = key.view().transposed(1, 2);
  other.value = value.view().transposed(1, 2);
  EXPECT_TRUE(
      same_bits(decode_blocks(p.query, other, {}), decode_blocks(p.query, blocks.view(), {})));
}

TEST(AttentionDecode, PagedErrors) {
  const RandomProblem p = in_float32({2, 4, 2, 1, 50}, 16, 16);
  const Blocks blocks(p, 8, {50, 29}, DType::kFloat32);
  Tensor context(DType::kFloat32, {2, 4, 1, 16});
  const auto message = [&](const Tensor& query, const PagedKeyValue& cache,
                           const AttentionOptions& options = {}) -> std::string {
    try {
      attention_decode(query, cache, options, {.context = context});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(Tensor(DType::kFloat32, {3, 4, 1, 16}), blocks.view()),
            "lengths: expected one per batch item (3), got 2");
  EXPECT_EQ(message(convert(p.query, DType::kFloat64), blocks.view()),
            "dtype: expected float32, float16 or bfloat16 with a paged cache, got float64, float32 "
            "and float32");
  EXPECT_EQ(message(p.query, blocks.view(), {.sequences = {{0, 1}, {0, 50}}}),
            "sequences: expected none with a paged cache, which has lengths, got 1");
  EXPECT_EQ(message(Tensor(DType::kFloat32, {2, 3, 1, 16}), blocks.view()),
            "heads: expected q_heads to be a multiple of kv_heads, got 3 and 2");
  EXPECT_EQ(message(Tensor(DType::kFloat32, {2, 4, 1, 15}), blocks.view()),
            "key: expected dim 15 as query has, got 16");
  Blocks wrong = blocks;
  wrong.table.at<std::int64_t>({1, 2}) = 1000;
  EXPECT_EQ(message(p.query, wrong.view()).substr(0, 12), "block_table:");
  // The last block is memory of the cache even if no sequence uses it.
  Blocks right = blocks;
  const std::int64_t last = right.value.extent(0) - 1;
  const MutableTensorView there(&right.value.at<float>({last, 0, 0, 0}), {2, 4, 1, 16});
  EXPECT_EQ(message_of([&] { attention_decode(p.query, right.view(), {}, {.context = there}); }),
            "context: expected memory of its own, got some that value uses");
  // The table is read while contexts are written.
  std::vector<std::int64_t> memory(2 * 7 + 4 * 16);
  std::ranges::copy(right.table.span<std::int64_t>(), memory.begin());
  PagedKeyValue cache = right.view();
  cache.block_table = TensorView(memory.data(), right.table.shape());
  const MutableTensorView over(reinterpret_cast<float*>(memory.data() + 7), {2, 4, 1, 16});
  EXPECT_EQ(message_of([&] { attention_decode(p.query, cache, {}, {.context = over}); }),
            "context: expected memory of its own, got some that block_table uses");
  Tensor lengths(DType::kInt64, {64});  // and room for a context
  std::ranges::copy(right.lengths.span<std::int64_t>(), lengths.span<std::int64_t>().begin());
  cache.lengths = TensorView(lengths.span<std::int64_t>().data(), {2});
  const MutableTensorView over_lengths(
      reinterpret_cast<float*>(lengths.span<std::int64_t>().data()), {2, 4, 1, 16});
  EXPECT_EQ(message_of([&] { attention_decode(p.query, cache, {}, {.context = over_lengths}); }),
            "context: expected memory of its own, got some that lengths uses");
  const AttentionOptions given{
      .execution = {.workspace = std::as_writable_bytes(std::span(memory))}};
  EXPECT_EQ(message_of([&] { attention_decode(p.query, cache, given, {.context = context}); }),
            "workspace: expected memory of its own, got some that block_table uses");
}

}  // namespace
}  // namespace fovea::test
