// SPDX-License-Identifier: Apache-2.0
//
// Mixed types in one call, and rounding to 16-bit types: by the 1x rule, and bit by bit against a
// call in float32 where nothing else is rounded. These tests set their types themselves and do not
// read FOVEA_TEST_STORAGE.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "kernels/forward/forward.h"
#include "kernels/simd/target.h"
#include "support/flushing.h"
#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Types {
  DType query, key, value, context;

  std::string to_string() const {
    std::string text;
    for (const DType type : {query, key, value, context})
      text += std::string(dtype_name(type)) + " ";
    return text;
  }
  /// Returns the least precise type.
  DType coarsest() const {
    return std::max({query, key, value, context},
                    [](DType a, DType b) { return rounding_of(a) < rounding_of(b); });
  }
  /// Returns true if the kernel multiplies bfloat16 pairs, which requires rounded weights.
  bool rounds_weights() const {
    AttentionOptions options;
    return kernels::forward_sizes({.options = &options, .types = {query, key, value}})
               .number_bytes == 2;
  }
};

std::vector<Types> all_types() {
  std::vector<Types> all;
  for (const DType query : kTypes) {
    for (const DType key : kTypes) {
      for (const DType value : kTypes) {
        for (const DType context : kTypes) all.push_back({query, key, value, context});
      }
    }
  }
  return all;
}

/// Returns the same problem in the given types.
RandomProblem problem_of(const Types& types, const ProblemShape& shape, std::int64_t head_dim,
                         std::int64_t value_dim, std::uint64_t seed = 1) {
  RandomProblem p(shape, head_dim, value_dim, seed);
  p.query = convert(p.query, types.query);
  p.key = convert(p.key, types.key);
  p.value = convert(p.value, types.value);
  return p;
}

/// Checks by the 1x rule, like expect_exact, with a naive computation in `type`.
void expect_as_exact_as(DType type, const reference::Inputs& in, const AttentionOptions& options,
                        DType context) {
  const RowList rows = all_rows(shape_of(in));
  const Forward found = rows_of(forward(in, options, context), rows);
  const Forward exact = oracle(in, options, rows);
  const Forward plain = naive(in, options, rows, type);
  const Allowance allowance = allowance_of(in, options, rows, exact, type);
  EXPECT_TRUE(as_exact_as(found.context, plain.context, exact.context, allowance.context))
      << "context";
  EXPECT_TRUE(as_exact_as(found.lse, plain.lse, exact.lse, allowance.lse)) << "lse";
}

std::vector<AttentionOptions> some_options() {
  return {{},
          {.mask = causal()},
          {.mask = window(9, 2), .score = {.scale = -0.3}},
          {.mask = causal(), .score = {.softcap = 2.0, .alibi = Alibi{}, .sinks = {0, 1}}}};
}

TEST(AttentionStorage, EveryCombinationOfTypes) {
  for (const Types& types : all_types()) {
    SCOPED_TRACE(types.to_string());
    const RandomProblem odd = problem_of(types, {1, 2, 1, 53, 71}, 13, 11);
    for (const AttentionOptions& options : some_options()) {
      expect_as_exact_as(types.coarsest(), odd.inputs(), options, types.context);
    }
    // Several blocks of keys.
    const RandomProblem wide = problem_of(types, {1, 2, 2, 1, 300}, 256, 250);
    expect_as_exact_as(types.coarsest(), wide.inputs(), {}, types.context);
    for (const std::int64_t queries : {1, 3}) {
      const RandomProblem one_key = problem_of(types, {1, 1, 1, queries, 1}, 1, 1);
      expect_as_exact_as(types.coarsest(), one_key.inputs(), {}, types.context);
    }
  }
}

TEST(AttentionStorage, Float32ContextOf16BitInputsIsNotRounded) {
  // 16-bit types convert to float32 exactly: unless weights are rounded, the rule of float32 holds.
  for (const Types& types : all_types()) {
    if (types.context != DType::kFloat32) continue;
    SCOPED_TRACE(types.to_string());
    const RandomProblem p = problem_of(types, {1, 2, 1, 53, 71}, 13, 11);
    const DType type = types.rounds_weights() ? DType::kBFloat16 : DType::kFloat32;
    for (const AttentionOptions& options : some_options()) {
      expect_as_exact_as(type, p.inputs(), options, DType::kFloat32);
    }
  }
}

TEST(AttentionStorage, Inputs16BitMatchFloat32BitForBit) {
  for (const Types& types : all_types()) {
    if (types.context != DType::kFloat32 || types.rounds_weights()) continue;
    SCOPED_TRACE(types.to_string());
    const RandomProblem p = problem_of(types, {1, 2, 1, 20, 530}, 33, 20);
    RandomProblem floats = p;
    for (Tensor* tensor : {&floats.query, &floats.key, &floats.value}) {
      *tensor = convert(*tensor, DType::kFloat32);
    }
    for (const AttentionOptions& options : some_options()) {
      EXPECT_TRUE(same_bits(forward(p.inputs(), options, DType::kFloat32),
                            forward(floats.inputs(), options)));
    }
  }
}

TEST(AttentionStorage, ContextIsRoundedOnceFromFloat32) {
  // Dimensions beyond the number of columns written at once, which is the number of keys in a
  // block; queries of one panel and of several, which a kernel may compute in a pipeline.
  for (const auto& [value_dim, q_len] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 50},
                                                          {7, 50},
                                                          {8, 50},
                                                          {15, 50},
                                                          {17, 50},
                                                          {33, 50},
                                                          {600, 50},
                                                          {1, 150},
                                                          {40, 150}}) {
    for (const DType type : kTypes) {
      const RandomProblem p =
          problem_of({type, type, type, type}, {1, 2, 1, q_len, 40}, 9, value_dim);
      const Forward floats = forward(p.inputs(), {.mask = causal()}, DType::kFloat32);
      for (const DType context : kTypes) {
        SCOPED_TRACE(testing::Message() << value_dim << ", " << q_len << " queries, "
                                        << dtype_name(type) << " to " << dtype_name(context));
        const Forward found = forward(p.inputs(), {.mask = causal()}, context);
        EXPECT_TRUE(same_bits(found.context, convert(floats.context, context)));
        EXPECT_TRUE(same_bits(found.lse, floats.lse));
      }
    }
  }
}

TEST(AttentionStorage, ExtremeValuesRoundLikeConvert) {
  // With one key, the context is its value. Normal and subnormal numbers, underflow to 0, overflow
  // to infinity, ties, and NaN.
  std::vector<float> numbers{
      0.0F,        -0.0F,        1.0F,          65504.0F,      65519.9F,
      65520.0F,    1e6F,         -65520.0F,     0x1.ffffp127F, 3.39e38F,
      0x1p-14F,    0x1.ffcp-15F, 1e-5F,         0x1p-24F,      0x1.8p-24F,
      0x1p-25F,    0x1.01p-25F,  -0x1p-24F,     1.0009765625F, 1.00048828125F,
      1.00390625F, 1.001953125F, std::nanf(""), HUGE_VALF,     -HUGE_VALF};
  RandomState random(5);
  for (int n = 0; n < 500; ++n) {
    numbers.push_back(static_cast<float>(random.rand() - 0.5) *
                      std::exp2(static_cast<float>(random.randint(-30, 20))));
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  const Tensor value = Tensor::from<float>({1, count, 1, 1}, numbers);
  const Tensor row = Tensor::from<float>({1, 1, 1, count}, numbers);
  const Tensor one(DType::kFloat32, {1, count, 1, 3});
  const Tensor all(DType::kFloat32, {1, 1, 1, 3});
  for (const DType context : kTypes) {
    SCOPED_TRACE(std::string(dtype_name(context)));
    const Tensor expected = convert(value, context);
    const Tensor by_key = forward({one, one, value}, {}, context).context;
    const Tensor by_dim = forward({all, all, row}, {}, context).context;
    for (std::int64_t n = 0; n < count; ++n) {
      const double number = expected.value({0, n, 0, 0});
      for (const double found : {by_key.value({0, n, 0, 0}), by_dim.value({0, 0, 0, n})}) {
        if (std::isnan(number)) {
          EXPECT_TRUE(std::isnan(found)) << numbers[static_cast<std::size_t>(n)];
        } else {
          EXPECT_EQ(found, number) << numbers[static_cast<std::size_t>(n)];
        }
      }
    }
  }
}

// ---- Pairs of bfloat16 --------------------------------------------------------------------------

RandomProblem bfloat16_problem(const ProblemShape& shape, std::int64_t head_dim,
                               std::int64_t value_dim) {
  constexpr DType kType = DType::kBFloat16;
  return problem_of({kType, kType, kType, kType}, shape, head_dim, value_dim);
}

void expect_exact_bfloat16(const reference::Inputs& in, const AttentionOptions& options) {
  expect_as_exact_as(DType::kBFloat16, in, options, DType::kBFloat16);
}

TEST(AttentionStorage, OnlyBfloat16PairKernelsRoundWeights) {
  // The weights are 1 and 2^-x for many x; their rounding error shows whether they are bfloat16 or
  // float32.
  Tensor query(DType::kBFloat16, {1, 1, 40, 2}), key(DType::kBFloat16, {1, 1, 2, 2});
  Tensor value(DType::kBFloat16, {1, 1, 2, 1});
  for (std::int64_t row = 0; row < 40; ++row) {
    set_value(query, {0, 0, row, 0}, static_cast<double>(row) / 16);
  }
  set_value(key, {0, 0, 1, 0}, -1.0);
  set_value(value, {0, 0, 1, 0}, 1.0);
  const reference::Inputs in{query, key, value};
  const Tensor found = forward(in, {}, DType::kFloat32).context;
  const RowList rows = all_rows(shape_of(in));
  const Tensor exact = oracle(in, {}, rows).context;
  double worst = 0.0;
  for (std::int64_t row = 0; row < 40; ++row) {
    worst = std::max(worst, std::abs(found.value({0, 0, row, 0}) / exact.value({row, 0}) - 1.0));
  }
  EXPECT_EQ(worst > 0x1p-12, kernels::bf16_products_active()) << worst;
  EXPECT_LT(worst, kernels::bf16_products_active() ? 0x1.01p-8 : 0x1p-21);
}

TEST(AttentionStorage, PairsOfEveryDimensionAndLength) {
  for (std::int64_t dim = 1; dim <= 33; ++dim) {
    for (const std::int64_t kv_len : {1, 2, 7, 8, 9, 17}) {
      SCOPED_TRACE(testing::Message() << dim << ", " << kv_len << " keys");
      const RandomProblem p =
          bfloat16_problem({1, 1, 1, 5, kv_len}, dim, (dim + 3 * kv_len) % 33 + 1);
      expect_exact_bfloat16(p.inputs(), {});
      expect_exact_bfloat16(p.inputs(), {.mask = causal()});
    }
  }
}

TEST(AttentionStorage, PairsWithScalesOfEverySign) {
  const RandomProblem p = bfloat16_problem({1, 2, 1, 50, 75}, 13, 11);
  const Tensor bias = RandomState(3).randn({50, 75});
  for (const double scale : {-1.0, -0.01, 0.0, -0.0, 1e-45, 1e-60, 0.2, 3.0}) {
    for (const Mask& mask : {Mask(), causal(), prefix(9), window(3, 3)}) {
      SCOPED_TRACE(testing::Message() << scale << ", " << mask.to_string());
      expect_exact_bfloat16(p.inputs(), {.mask = mask, .score = {.scale = scale}});
      expect_exact_bfloat16(p.inputs(), {.mask = mask, .score = {.scale = scale, .softcap = 2.0}});
      expect_exact_bfloat16(p.inputs(), {.mask = mask, .score = {.scale = scale, .bias = bias}});
      expect_exact_bfloat16(
          p.inputs(),
          {.mask = mask, .score = {.scale = scale, .alibi = Alibi{}, .sinks = {-1, 2}}});
    }
  }
}

TEST(AttentionStorage, NanInOneOfAPairDoesNotAffectTheOther) {
  constexpr ProblemShape kShape{1, 1, 1, 20, 24};
  const RandomProblem clean = bfloat16_problem(kShape, 5, 11);
  for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (std::int64_t key = 0; key < kShape.kv_len; ++key) {
      RandomProblem poisoned = clean;
      fill(poisoned.key.view()[0][0][key], number);
      fill(poisoned.value.view()[0][0][key], number);
      // The adjacent keys on both sides are visible.
      Tensor open(DType::kBool, {kShape.kv_len});
      fill(open, 1.0);
      set_value(open, {key}, 0.0);
      const AttentionOptions hidden{.mask = dense(open)};
      EXPECT_TRUE(same_bits(forward(poisoned.inputs(), hidden), forward(clean.inputs(), hidden)))
          << number << " at " << key;
      // A value in one column of a visible key affects only this column of the context.
      RandomProblem column = clean;
      const std::int64_t c = key % 11;
      set_value(column.value, {0, 0, key, c}, number);
      const Tensor found = forward(column.inputs()).context;
      const Tensor before = forward(clean.inputs()).context;
      for_each_index(found.shape(), [&](const Index& at) {
        if (at[3] == c) {
          EXPECT_FALSE(std::isfinite(found.value(at))) << number << " at " << key;
        } else {
          EXPECT_NEAR(found.value(at), before.value(at), 0x1p-8 * size_of(clean.value));
        }
      });
    }
  }
}

TEST(AttentionStorage, NanStaysNanForAnyPayload) {
  // Rounding the bits of a NaN as if it were finite would turn all ones into -0.
  RandomProblem p({1, 1, 1, 5, 40}, 8, 20);
  for (Tensor* const tensor : {&p.query, &p.key, &p.value}) {
    *tensor = convert(*tensor, DType::kFloat32);
  }
  for (const std::uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff800001U}) {
    for (const std::int64_t c : {0, 7, 19})
      p.value.at<float>({0, 0, 33, c}) = std::bit_cast<float>(bits);
    for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
      const Tensor context = forward(p.inputs(), {}, type).context;
      for_each_index(context.shape(), [&](const Index& at) {
        const bool spoilt = at[3] == 0 || at[3] == 7 || at[3] == 19;
        EXPECT_EQ(std::isnan(context.value(at)), spoilt) << bits << to_string(at);
      });
    }
  }
}

/// Returns a tensor of one number for each of nine tokens. Fewer queries may be decoded, and
/// decoding flushes subnormal numbers only where it multiplies pairs of bfloat16.
Tensor nine_equal(DType type, double number) {
  Tensor tensor(type, {1, 1, 9, 1});
  for_each_index(tensor.shape(), [&](const Index& at) { set_value(tensor, at, number); });
  return tensor;
}

TEST(AttentionStorage, OnlyBfloat16PairKernelsFlushSubnormals) {
  const auto all = [](double number) { return nine_equal(DType::kBFloat16, number); };
  const AttentionOptions first_key{.mask = causal()};
  const auto first = [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return forward({query, key, value}, first_key);
  };
  const bool zeros = kernels::bf16_products_active();
  const Tensor normal = all(1.0), small = all(0x1p-130), smallest = all(0x1p-126);
  EXPECT_EQ(first(normal, normal, small).context.value({0, 0, 0, 0}), zeros ? 0.0 : 0x1p-130);
  EXPECT_EQ(first(normal, normal, smallest).context.value({0, 0, 0, 0}), 0x1p-126);
  const Tensor large = all(0x1p120);
  // Queries are rounded when scaled, and subnormal numbers have few digits.
  for (const auto& [query, key] : {std::pair(&small, &large), {&large, &small}}) {
    EXPECT_NEAR(first(*query, *key, normal).lse.value({0, 0, 0}), zeros ? 0.0 : 0x1p-10, 0x1p-25);
  }
  EXPECT_NEAR(first(smallest, large, normal).lse.value({0, 0, 0}), 0x1p-6, 0x1p-25);
}

TEST(AttentionStorage, BiasesFlushSubnormalContexts) {
  const Tensor one = nine_equal(DType::kFloat32, 1.0);
  const Tensor small = nine_equal(DType::kFloat32, 0x1p-130);
  expect_flushed_with_biases([&](const ScoreOptions& score) {
    return forward({one, one, small}, {.mask = causal(), .score = score})
        .context.value({0, 0, 0, 0});
  });
}

}  // namespace
}  // namespace fovea::test
