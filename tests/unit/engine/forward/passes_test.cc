// SPDX-License-Identifier: Apache-2.0
//
// attention_forward on both sides of the borders between its passes: decoding, tiles with keys in
// place, tiles with packed keys. Each result matches the oracle, and its bits depend neither on the
// number of threads nor on the other sequences of a call.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_options.h"
#include "fovea/mask.h"

#include "engine/call/heads_together.h"
#include "engine/call/problem.h"
#include "engine/decode/decode_plan.h"
#include "kernels/simd/target.h"
#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

struct Size {
  std::int64_t q_len, kv_len, head_dim, value_dim;
  std::int64_t kv_heads = 2;
};

std::vector<Size> sizes() {
  std::vector<Size> all;
  constexpr std::int64_t kDims[] = {64, 1, 7, 32, 16};
  std::size_t turn = 0;
  for (const std::int64_t q_len : {0, 1, 2, 4, 5, 8, 9, 31, 32, 33, 47, 48, 49, 96, 97}) {
    for (const std::int64_t kv_len : {0, 1, 63, 64, 65, 300}) {
      all.push_back({q_len, kv_len, kDims[turn % 5], kDims[turn % 3]});
      ++turn;
    }
  }
  for (const std::int64_t q_len : {1, 9, 97}) all.push_back({q_len, 80, 513, 513});
  // Heads that are not computed together.
  for (const std::int64_t q_len : {3, 4, 6, 7, 9, 12, 13, 16, 17, 24, 25}) {
    for (const std::int64_t dim : {19, 64, 130}) all.push_back({q_len, 90, dim, dim, 4});
  }
  return all;
}

TEST(AttentionPasses, MatchTheOracleOnBothSidesOfTheirBorders) {
  for (const Size& size : sizes()) {
    const ProblemShape shape{2, 4, size.kv_heads, size.q_len, size.kv_len};
    const RandomProblem problem = stored_problem(shape, size.head_dim, size.value_dim);
    for (const Mask& mask : {Mask(), causal()}) {
      SCOPED_TRACE(std::to_string(size.q_len) + " queries, " + std::to_string(size.kv_len) +
                   " keys, " + std::to_string(size.head_dim) + " and " +
                   std::to_string(size.value_dim) + " dimensions");
      AttentionOptions options{.mask = mask};
      if (size.q_len > 0) expect_exact(problem.inputs(), options, some_rows(shape, 6));
      options.execution.threads = 1;
      const Forward one = forward(problem.inputs(), options);
      for (const int threads : {2, 3, 8}) {
        options.execution.threads = threads;
        EXPECT_TRUE(same_bits(forward(problem.inputs(), options), one)) << threads << " threads";
      }
    }
  }
}

/// Checks that each sequence of a packed call has the bits of a separate call.
void expect_bits_of_separate_calls(const PackedSequences& sequences, const ProblemShape& shape,
                                   std::int64_t head_dim) {
  const RandomProblem problem = stored_problem(shape, head_dim, 16);
  for (const Mask& mask : {Mask(), causal(), window(20, 0)}) {
    AttentionOptions packed{.mask = mask};
    packed.sequences = sequences;
    const Forward all = forward(problem.inputs(), packed);
    for (std::int64_t s = 0; s < sequences.count(); ++s) {
      const SequenceSpan span = sequence_span(packed, shape, s);
      const Forward one = forward({rows_from(problem.query, span.query_start, span.q_len),
                                   rows_from(problem.key, span.key_start, span.kv_len),
                                   rows_from(problem.value, span.key_start, span.kv_len)},
                                  {.mask = mask});
      EXPECT_TRUE(same_bits(rows_from(all.context, span.query_start, span.q_len), one.context))
          << "sequence " << s;
    }
    expect_exact(problem.inputs(), packed, some_rows(shape, 20));
  }
}

/// Sequences of each pass in one call: 1, 4, 16, 100 and 8 queries.
TEST(AttentionPasses, SequencesOfOneCallMayTakeDifferentPasses) {
  expect_bits_of_separate_calls({{0, 1, 5, 21, 121, 129}, {0, 200, 300, 330, 530, 3000}},
                                {1, 4, 2, 129, 3000, 5}, 128);
}

/// Different numbers of heads together in one call, a sequence that is decoded, and one without
/// queries.
TEST(AttentionPasses, SequencesOfOneCallMayHaveHeadsTogether) {
  expect_bits_of_separate_calls(
      {{0, 4, 12, 12, 24, 25, 49, 149}, {0, 70, 200, 250, 300, 500, 600, 700}},
      {1, 32, 8, 149, 700, 7}, 16);
  // Parts of different sizes in two ways, and separate heads.
  expect_bits_of_separate_calls({{0, 20, 28, 60}, {0, 70, 200, 300}}, {1, 14, 2, 60, 300, 3}, 16);
}

/// Checks whether attention_forward decodes, as the explicit call does.
void expect_decoded(const ProblemShape& shape, std::int64_t head_dim, bool decoded) {
  const RandomProblem problem = stored_problem(shape, head_dim, 64);
  const Forward found = forward(problem.inputs(), {});
  Tensor context(found.context.dtype(), found.context.shape());
  attention_decode(problem.query, problem.key, problem.value, {}, {.context = context});
  EXPECT_EQ(same_bits(found.context, context), decoded)
      << shape.q_len << " queries, " << shape.kv_len << " keys, D " << head_dim;
}

bool is_stored_in_bfloat16() {
  return stored_problem({1, 1, 1, 1, 1}, 1, 1).query.dtype() == DType::kBFloat16;
}

TEST(AttentionPasses, OneQueryIsDecoded) {
  expect_decoded({2, 8, 2, 1, 500}, 64, true);
  if (is_stored_in_bfloat16() && kernels::tile_unit_active() != kernels::UnitKind::kNone) {
    GTEST_SKIP() << "not decoded for few keys";
  }
  for (const std::int64_t keys : {1, 5, 63}) expect_decoded({2, 3, 3, 1, keys}, 64, true);
}

/// Where pairs of bfloat16 are multiplied, up to 4 + keys / 16 queries are decoded, at most 15.
TEST(AttentionPasses, MoreBfloat16QueriesAreDecodedForMoreKeys) {
  if (!is_stored_in_bfloat16() || kernels::bf16_dots_active() == kernels::UnitKind::kNone) {
    GTEST_SKIP() << "no pairs of bfloat16";
  }
  const AttentionOptions options;
  for (const auto& [keys, most] : {std::pair<std::int64_t, std::int64_t>(1, 4),
                                   {15, 4},
                                   {16, 5},
                                   {63, 7},
                                   {64, 8},
                                   {175, 14},
                                   {176, 15},
                                   {5000, 15}}) {
    for (const std::int64_t group : {1, 4}) {
      for (const std::int64_t queries : {std::int64_t{1}, most, most + 1}) {
        const ProblemShape shape{1, 2 * group, 2, queries, keys};
        const RandomProblem p = stored_problem(shape, 40, 24);
        const engine::Problem problem = engine::make_problem(p.query, p.key, p.value, options);
        const SequenceSpan span = sequence_span(options, shape, 0);
        EXPECT_EQ(engine::has_few_queries(problem, span), queries <= most)
            << queries << " queries, " << keys << " keys";
      }
    }
  }
}

/// Without pairs of bfloat16, the maximum number of decoded rows depends on the SIMD target.
TEST(AttentionPasses, FewRowsOfAKeyHeadAreDecodedForFewKeys) {
  const AttentionOptions options;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const std::int64_t dim : {64, 65, 128, 129, 256, 257}) {
      for (const std::int64_t keys : {1, 15, 16, 31, 32, 63}) {
        for (const auto& [group, queries] : {std::pair<std::int64_t, std::int64_t>(1, 1),
                                             {1, 2},
                                             {2, 1},
                                             {1, 3},
                                             {3, 1},
                                             {4, 1},
                                             {2, 2},
                                             {1, 5},
                                             {6, 1},
                                             {7, 1},
                                             {1, 8}}) {
          const ProblemShape shape{1, 2 * group, 2, queries, keys};
          const RandomProblem random(shape, dim, 8, 3);
          const Tensor query = convert(random.query, dtype), key = convert(random.key, dtype),
                       value = convert(random.value, dtype);
          const engine::Problem problem = engine::make_problem(query, key, value, options);
          const std::int64_t vector = engine::forward_sizes(problem).in_place_vector;
          std::int64_t most = 0;
          if (vector < 8) {
            most = std::min<std::int64_t>(vector, 2);
          } else if (dtype == DType::kFloat16) {
            most = keys < 16 ? 4 : keys < 32 ? 5 : keys < 48 ? 6 : 7;
            if (vector == 16 && dim > 128) most = dim > 256 ? 3 : std::min<std::int64_t>(most, 6);
          } else {
            most = dim > 16 * vector ? 2 : vector == 16 && keys >= 16 && dim <= 128 ? 4 : 3;
          }
          EXPECT_EQ(engine::has_few_queries(problem, sequence_span(options, shape, 0)),
                    group * queries <= most)
              << dtype_name(dtype) << ", " << dim << ", " << keys << " keys, " << group
              << " heads, " << queries << " queries";
        }
      }
    }
  }
  const RandomProblem one = stored_problem({1, 1, 1, 1, 1}, 64, 64);
  // Different passes may give equal contexts once these are rounded to 16 bits.
  if (one.query.dtype() != DType::kFloat32) return;
  const engine::Problem made = engine::make_problem(one.query, one.key, one.value, options);
  const std::int64_t vector = engine::forward_sizes(made).in_place_vector;
  expect_decoded({2, 4, 2, 1, 40}, 64, vector >= 4);
  expect_decoded({2, 3, 3, 3, 40}, 64, vector >= 8);
  expect_decoded({2, 8, 2, 1, 40}, 64, vector >= 16);
  expect_decoded({2, 10, 2, 1, 40}, 64, false);
}

/// Up to 8 queries are decoded if the keys of a head have more than 512 K elements. For float32
/// keys and vectors of 8 lanes, they are decoded only if there are also fewer than 8 key heads.
TEST(AttentionPasses, KeysOfLongHeadsAreDivided) {
  const AttentionOptions options;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const std::int64_t heads : {7, 8}) {
      for (const std::int64_t queries : {3, 4, 8, 9}) {
        const ProblemShape shape{1, heads, heads, queries, 4097};
        const RandomProblem random(shape, 128, 1, 3);
        const Tensor query = convert(random.query, dtype), key = convert(random.key, dtype),
                     value = convert(random.value, dtype);
        const engine::Problem problem = engine::make_problem(query, key, value, options);
        const bool tiles_are_faster =
            dtype == DType::kFloat32 && engine::forward_sizes(problem).in_place_vector == 8;
        const std::int64_t most = tiles_are_faster && heads == 8 ? 3 : 8;
        EXPECT_EQ(engine::has_few_queries(problem, sequence_span(options, shape, 0)),
                  queries <= most)
            << dtype_name(dtype) << ", " << heads << " heads, " << queries << " queries";
      }
    }
  }
}

/// Where scores depend on more than the query and the key, tiles compute each head alone, and up to
/// three queries are decoded on few keys.
TEST(AttentionPasses, FewQueriesOfLoneHeadsAreDecodedForFewKeys) {
  if (is_stored_in_bfloat16()) GTEST_SKIP() << "other borders";
  const Tensor bias = convert(RandomState(3).randn({2, 1, 1, 40}), DType::kFloat32);
  const std::vector<ScoreOptions> scores{
      {.bias = bias}, {.alibi = Alibi{}}, {.sinks = std::vector<double>(12, 0.1)}};
  for (const ScoreOptions& score : scores) {
    for (const std::int64_t queries : {1, 2, 3, 4}) {
      const ProblemShape shape{2, 12, 2, queries, 40};
      const RandomProblem p = stored_problem(shape, 40, 24);
      const AttentionOptions options{.score = score};
      const engine::Problem problem = engine::make_problem(p.query, p.key, p.value, options);
      const SequenceSpan span = sequence_span(options, shape, 0);
      const bool few = queries <= 3 && engine::forward_sizes(problem).in_place_vector > 0;
      EXPECT_EQ(engine::has_few_queries(problem, span), few) << queries;
      expect_exact(p.inputs(), options);
    }
  }
}

/// Packed sequences of one query each, with fewer and with more keys than 64.
TEST(AttentionPasses, SequencesOfOneQueryMayHaveFewKeys) {
  expect_bits_of_separate_calls({{0, 1, 2, 3, 4}, {0, 1, 64, 129, 131}}, {1, 4, 4, 4, 131, 4}, 64);
  // Several queries, some of them decoded where pairs of bfloat16 are multiplied.
  expect_bits_of_separate_calls({{0, 3, 8, 13, 20}, {0, 1, 16, 47, 110}}, {1, 4, 4, 20, 110, 4},
                                64);
}

}  // namespace
}  // namespace fovea::test
