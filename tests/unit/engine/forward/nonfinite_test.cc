// SPDX-License-Identifier: Apache-2.0
//
// NaN and infinity in the engine: masked keys and values do not change a single bit; visible ones
// spread only to the rows that see them; rows without a key give 0 and -inf, or the sink.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Two blocks of keys, with 512 and 38.
constexpr ProblemShape kNonfiniteShape{1, 2, 1, 53, 550};
constexpr std::int64_t kHeadDim = 5, kValueDim = 11;

struct Poison {
  std::string name;
  double number;
  bool whole_row;  // or a single element
  bool in_key, in_value;
};

std::vector<Poison> poisons() {
  std::vector<Poison> all;
  for (const double number : {kNan, kInfinity, -kInfinity}) {
    for (const bool whole_row : {true, false}) {
      for (const auto& [in_key, in_value] : {std::pair(true, false), {false, true}, {true, true}}) {
        all.push_back({std::to_string(number) + (whole_row ? " in all" : " in one") + " of " +
                           (in_key ? "key " : "") + (in_value ? "value" : ""),
                       number, whole_row, in_key, in_value});
      }
    }
  }
  return all;
}

/// Poisons a whole row or a single element. The element's column varies with the key, to cover full
/// tiles of columns and the remainder.
void poison_row(Tensor& tensor, std::int64_t key, const Poison& poison) {
  const std::int64_t dim = tensor.extent(3);
  for (std::int64_t c = 0; c < dim; ++c) {
    if (poison.whole_row || c == key % dim) set_value(tensor, {0, 0, key, c}, poison.number);
  }
}

class AttentionNonfinite : public testing::Test {
 protected:
  /// Poisons some keys. Rows that see no poisoned key must be bitwise equal to the clean run; all
  /// other rows must match the reference.
  void check(const AttentionOptions& options, const std::vector<std::int64_t>& keys,
             const Poison& poison) {
    const Forward clean = forward(problem_.inputs(), options);
    const reference::Steps steps = reference::attention_steps(problem_.inputs(), options);
    RandomProblem poisoned = problem_;
    for (const std::int64_t key : keys) {
      if (poison.in_key) poison_row(poisoned.key, key, poison);
      if (poison.in_value) poison_row(poisoned.value, key, poison);
    }
    const Forward found = forward(poisoned.inputs(), options);
    RowList see, see_not;
    for (const reference::Row& row : all_rows(shape_)) {
      bool sees = false;
      for (const std::int64_t key : keys) {
        sees = sees || steps.visible.at<bool>({0, row.head, row.query, key});
      }
      (sees ? see : see_not).push_back(row);
    }
    EXPECT_TRUE(same_bits(rows_of(found, see_not), rows_of(clean, see_not)));
    if (see.size() > 24) see.resize(24);
    const Forward exact = oracle(poisoned.inputs(), options, see);
    // float16 weights of the naive computation may underflow, and 0 times infinity is NaN; the
    // engine's weights are float32.
    const DType weights = storage() == DType::kFloat16 ? DType::kFloat32 : storage();
    const Forward plain = naive(poisoned.inputs(), options, see, weights);
    const Allowance allowance = allowance_of(poisoned.inputs(), options, see, exact);
    const Forward seen = rows_of(found, see);
    EXPECT_TRUE(as_exact_as(seen.context, plain.context, exact.context, allowance.context));
    EXPECT_TRUE(as_exact_as(seen.lse, plain.lse, exact.lse, allowance.lse));
    rows_kept_ += see_not.size();
    rows_spread_ += see.size();
  }

  ProblemShape shape_ = kNonfiniteShape;
  RandomProblem problem_ = stored_problem(kNonfiniteShape, kHeadDim, kValueDim);
  std::size_t rows_kept_ = 0, rows_spread_ = 0;
};

std::vector<AttentionOptions> all_options() {
  const Tensor open = convert(
      RandomState(2).randint(0, 2, {kNonfiniteShape.q_len, kNonfiniteShape.kv_len}), DType::kBool);
  const Tensor query_ids = RandomState(3).randint(0, 4, {kNonfiniteShape.q_len});
  const Tensor key_ids = RandomState(4).randint(0, 4, {kNonfiniteShape.kv_len});
  Tensor bias = RandomState(5).randn({kNonfiniteShape.q_len, kNonfiniteShape.kv_len});
  for_each_index(bias.shape(), [&](const Index& at) {
    if (!open.at<bool>(at)) bias.at<double>(at) = -HUGE_VAL;
  });
  Tensor hides_key(DType::kFloat32, {kNonfiniteShape.kv_len});
  for (std::int64_t j = 7; j < kNonfiniteShape.kv_len; j += 3)
    set_value(hides_key, {j}, -kInfinity);
  std::vector<AttentionOptions> all{
      {},
      {.mask = causal()},
      {.mask = causal(), .alignment = Alignment::top_left()},
      {.mask = window(20, 4)},
      {.mask = window(3, 0), .alignment = Alignment::offset(490)},
      {.mask = prefix(519)},
      {.mask = key_lengths({13})},
      {.mask = documents(query_ids, key_ids)},
      {.mask = dense(Tensor(open))},
      {.mask = causal() & dense(Tensor(open))},
      {.mask = window(7, 7) | prefix(3)},
      {.score = {.bias = Tensor(bias)}},
      {.score = {.bias = convert(bias, DType::kFloat32)}},
      {.score = {.bias = Tensor(hides_key)}},
      {.mask = causal(), .score = {.softcap = 2.0, .alibi = Alibi{}, .sinks = {0, 1}}},
      {.mask = causal(), .score = {.bias = Tensor(hides_key), .alibi = Alibi{}}},
  };
  return all;
}

TEST_F(AttentionNonfinite, SpreadsToTheRowsThatSeeItOnly) {
  RandomState random(6);
  std::size_t number = 0;
  for (const AttentionOptions& options : all_options()) {
    for (const Poison& poison : poisons()) {
      SCOPED_TRACE(testing::Message() << poison.name << ", options " << number);
      check(options, {random.randint(0, kNonfiniteShape.kv_len)}, poison);
      check(options, {random.randint(500, kNonfiniteShape.kv_len), random.randint(490, 525)},
            poison);
    }
    ++number;
  }
  EXPECT_GT(rows_kept_, 10000U);
  EXPECT_GT(rows_spread_, 1000U);
}

TEST_F(AttentionNonfinite, EveryKeyAroundTheDiagonalOfATile) {
  const Poison poison{"nan", kNan, true, true, true};
  for (std::int64_t key = 490; key < kNonfiniteShape.kv_len; ++key) {
    SCOPED_TRACE(key);
    check({.mask = causal()}, {key}, poison);
    check({.mask = window(5, 0)}, {key}, poison);
  }
}

TEST_F(AttentionNonfinite, AllMaskedKeysAtOnce) {
  // Keys that no row sees may hold any value.
  const std::vector<AttentionOptions> cases{
      {.mask = prefix(509)},
      {.mask = key_lengths({514})},
      {.mask = window(0, 0), .alignment = Alignment::offset(480)},
      {.mask = causal(), .alignment = Alignment::top_left()},
  };
  for (const AttentionOptions& options : cases) {
    const reference::Steps steps = reference::attention_steps(problem_.inputs(), options);
    std::vector<std::int64_t> hidden;
    for (std::int64_t key = 0; key < kNonfiniteShape.kv_len; ++key) {
      bool seen = false;
      for (const reference::Row& row : all_rows(kNonfiniteShape)) {
        seen = seen || steps.visible.at<bool>({0, row.head, row.query, key});
      }
      if (!seen) hidden.push_back(key);
    }
    EXPECT_GT(hidden.size(), 30U);
    for (const Poison& poison : poisons()) {
      SCOPED_TRACE(poison.name);
      check(options, hidden, poison);
    }
  }
}

TEST_F(AttentionNonfinite, FewQueriesAndKeys) {
  // Contexts that a kernel may write straight from its sums, and contexts that it may not: rows in
  // odd numbers, dimensions that do not fill a vector.
  // With 16 heads, two are computed together.
  for (const auto& [q_heads, q_len, value_dim] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {2, 16, 16}, {2, 52, 32}, {2, 53, 16}, {2, 52, 11}, {16, 8, 16}}) {
    shape_ = {1, q_heads, q_heads / 2, q_len, 70};
    problem_ = stored_problem(shape_, kHeadDim, value_dim);
    Tensor open = convert(RandomState(8).randint(0, 2, {q_len, shape_.kv_len}), DType::kBool);
    std::vector<AttentionOptions> all{{},
                                      {.mask = causal()},
                                      {.mask = causal(), .alignment = Alignment::top_left()},
                                      {.mask = window(5, 2)},
                                      {.mask = window(7, 7) | prefix(3)},
                                      {.mask = dense(std::move(open))},
                                      {.mask = causal()}};
    all.back().score.sinks.assign(static_cast<std::size_t>(q_heads), 0.5);
    for (const AttentionOptions& options : all) {
      for (const Poison& poison : poisons()) {
        SCOPED_TRACE(testing::Message()
                     << q_len << " queries, value_dim " << value_dim << ", " << poison.name);
        for (const std::int64_t key : {0, 17, 40, 69}) check(options, {key}, poison);
        check(options, {18, 30, 68}, poison);
      }
    }
  }
  EXPECT_GT(rows_kept_, 1000U);
  EXPECT_GT(rows_spread_, 1000U);
}

TEST_F(AttentionNonfinite, RelativeTableOfMinusInfinityMasksNan) {
  Tensor table = RandomState(7).randn({32, kNonfiniteShape.q_heads});
  for (std::int64_t head = 0; head < kNonfiniteShape.q_heads; ++head) {
    table.at<double>({3, head}) = -HUGE_VAL;  // three keys before the query
  }
  for (const Poison& poison : poisons()) {
    SCOPED_TRACE(poison.name);
    check({.score = {.relative = RelativeTable{table}}}, {530}, poison);
    check({.mask = causal(), .score = {.alibi = Alibi{}, .relative = RelativeTable{table}}}, {530},
          poison);
  }
}

TEST_F(AttentionNonfinite, NonfiniteQueriesAffectOnlyTheirRow) {
  for (const double number : {kNan, kInfinity}) {
    for (const std::int64_t row : {0, 15, 16, 31, 47, 48, 52}) {
      for (const AttentionOptions& options : {AttentionOptions{}, {.mask = causal()}}) {
        RandomProblem poisoned = problem_;
        set_value(poisoned.query, {0, 1, row, 2}, number);
        const Forward clean = forward(problem_.inputs(), options);
        const Forward found = forward(poisoned.inputs(), options);
        for (const reference::Row& one : all_rows(kNonfiniteShape)) {
          const bool spoiled = one.head == 1 && one.query == row;
          const double lse = found.lse.value({0, one.head, one.query});
          EXPECT_EQ(std::isnan(lse), spoiled);
          if (spoiled) continue;
          EXPECT_EQ(lse, clean.lse.value({0, one.head, one.query}));
        }
        expect_exact(poisoned.inputs(), options, {{0, 1, row}, {0, 0, row}});
      }
    }
  }
}

TEST_F(AttentionNonfinite, OverflowingScoresMatchNaive) {
  // These scores are finite in the oracle, but overflow in float32, so the naive computation is the
  // reference. In float16, scores overflow only with a large scale.
  const bool small = storage() == DType::kFloat16;
  const double number = small ? 65504.0 : 1e25;
  RandomProblem large = problem_;
  for (std::int64_t c = 0; c < kHeadDim; ++c) {
    set_value(large.query, {0, 0, 20, c}, number);
    set_value(large.key, {0, 0, 530, c}, number);
    set_value(large.key, {0, 0, 7, c}, -number);
  }
  for (const Mask& mask : {Mask(), prefix(100), causal()}) {
    AttentionOptions options{.mask = mask};
    if (small) options.score.scale = 1e30;
    const RowList row{{0, 0, 20}};
    const Forward found = rows_of(forward(large.inputs(), options), row);
    const Forward plain = naive(large.inputs(), options, row);
    EXPECT_EQ(std::isnan(found.lse.value({0})), std::isnan(plain.lse.value({0})));
    EXPECT_EQ(std::isnan(found.context.value({0, 3})), std::isnan(plain.context.value({0, 3})));
    if (!mask.allows_all()) continue;
    EXPECT_TRUE(std::isnan(found.lse.value({0})));  // +inf - +inf
  }
}

TEST_F(AttentionNonfinite, LargestOfWidelySpacedScoresDominates) {
  // The rounding errors of large scores may exceed the argument range of the exponential.
  const double most = storage() == DType::kFloat16 ? 0x1p15 : 0x1p50;
  for (const double size : {0x1p8, 0x1p12, 0x1p15, most}) {
    for (const double sign : {1.0, -1.0}) {
      SCOPED_TRACE(testing::Message() << size << ", sign " << sign);
      RandomProblem p = stored_problem({1, 1, 1, 3, 40}, 3, 9);
      fill(p.query, sign * size);
      change_all(p.key, [&](double x) { return sign * size * std::copysign(1.0, x); });
      fill(p.key.view()[0][0][23], 3 * size * sign / 2);
      for (const AttentionOptions& options :
           {AttentionOptions{}, {.mask = causal(), .alignment = Alignment::offset(30)}}) {
        const Forward found = forward(p.inputs(), options);
        for (std::int64_t row = 0; row < 3; ++row) {
          const double score = 3 * size * (3 * size / 2) / std::sqrt(3.0);
          EXPECT_NEAR(found.lse.value({0, 0, row}) / score, 1.0, 1e-6);
          for (std::int64_t c = 0; c < 9; ++c) {
            EXPECT_EQ(found.context.value({0, 0, row, c}), p.value.value({0, 0, 23, c}));
          }
        }
      }
    }
  }
}

TEST_F(AttentionNonfinite, InfinityTimesAnUnderflowedWeightIsNan) {
  // Scores of 0 and -100: the weight of about 2^-144 is subnormal in float32, and flushed to 0 by
  // the engine.
  const Tensor key = stored(Tensor::from<double>({1, 1, 2, 1}, {0.0, -100.0}));
  const Tensor value = stored(Tensor::from<double>({1, 1, 2, 1}, {1.0, kInfinity}));
  for (const std::int64_t queries : {1, 3}) {  // decoded, and in a tile
    Tensor ones(DType::kFloat64, {1, 1, queries, 1});
    change_all(ones, [](double) { return 1.0; });
    const Forward found = forward({stored(ones), key, value});
    EXPECT_TRUE(std::isnan(found.context.value({0, 0, 0, 0}))) << queries;
    EXPECT_EQ(found.lse.value({0, 0, 0}), 0.0) << queries;
  }
}

TEST_F(AttentionNonfinite, BiasOfMinusInfinityMasksAnyScore) {
  for (const double score : {kNan, kInfinity, -kInfinity}) {
    RandomProblem poisoned = problem_;
    for (std::int64_t c = 0; c < kHeadDim; ++c) set_value(poisoned.key, {0, 0, 530, c}, score);
    change_all(poisoned.query, [](double x) { return std::abs(x) + 1.0; });
    RandomProblem clean = problem_;
    clean.query = poisoned.query;
    Tensor bias(DType::kFloat32, {kNonfiniteShape.kv_len});
    set_value(bias, {530}, -kInfinity);
    for (const double softcap : {0.0, 3.0}) {
      const AttentionOptions options{.score = {.softcap = softcap, .bias = bias}};
      EXPECT_TRUE(same_bits(forward(poisoned.inputs(), options), forward(clean.inputs(), options)));
    }
  }
}

TEST_F(AttentionNonfinite, FullyMaskedRowsAreZeroAndMinusInfinityOrTheSink) {
  RandomProblem poisoned = problem_;
  for (Tensor* tensor : {&poisoned.key, &poisoned.value}) fill(*tensor, kNan);
  Tensor bias(DType::kFloat32, {kNonfiniteShape.kv_len});
  fill(bias, -kInfinity);
  const std::vector<AttentionOptions> cases{
      {.mask = prefix(0)},
      {.mask = causal(), .alignment = Alignment::offset(-600)},
      {.mask = dense(Tensor(DType::kBool, {kNonfiniteShape.q_len, kNonfiniteShape.kv_len}))},
      {.mask = key_lengths({0})},
      {.score = {.bias = Tensor(bias)}},
  };
  for (AttentionOptions options : cases) {
    for (const std::vector<double>& sinks :
         {std::vector<double>{}, {0.3, -100.7}, {-HUGE_VAL, 1e20}}) {
      options.score.sinks = sinks;
      const Forward found = forward(poisoned.inputs(), options);
      ASSERT_TRUE(all_are(found.context, 0.0));
      for (const reference::Row& row : all_rows(kNonfiniteShape)) {
        const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<std::size_t>(row.head)];
        ASSERT_EQ(found.lse.value({0, row.head, row.query}),
                  static_cast<double>(static_cast<float>(sink)));
      }
    }
  }
}

/// Additive masks of other libraries use the lowest finite number instead of -inf. Keys with this
/// bias are not masked, unlike keys with a bias of -inf, but their weights are 0 if the row has any
/// other key.
TEST_F(AttentionNonfinite, LowestFiniteBiasHasNoWeightNextToOthers) {
  Tensor bias(DType::kFloat32, {kNonfiniteShape.kv_len});
  const Tensor none = bias;
  for (std::int64_t j = 10; j < kNonfiniteShape.kv_len; ++j) {
    bias.at<float>({j}) = std::numeric_limits<float>::lowest();
  }
  const Forward found = forward(problem_.inputs(), {.score = {.bias = bias}});
  const Forward expected =
      forward(problem_.inputs(), {.mask = prefix(10), .score = {.bias = none}});
  EXPECT_TRUE(same_bits(found, expected));
}

TEST_F(AttentionNonfinite, LowestFiniteBiasOnAllKeysIsNotMasked) {
  for (const float lowest : {-1e30F, -2e38F, std::numeric_limits<float>::lowest()}) {
    SCOPED_TRACE(lowest);
    Tensor bias(DType::kFloat32, {kNonfiniteShape.kv_len});
    fill(bias, static_cast<double>(lowest));
    const RowList rows{{0, 0, 0}, {0, 1, 52}};
    const AttentionOptions options{.score = {.bias = bias}};
    const Forward found = rows_of(forward(problem_.inputs(), options), rows);
    const Forward plain = naive(problem_.inputs(), options, rows);
    const Forward exact = oracle(problem_.inputs(), options, rows);
    // Both contexts are rounded to the storage type.
    const double stored_twice =
        2 * size_of_storing(problem_.inputs(), options, rows, exact, storage());
    for (std::int64_t r = 0; r < 2; ++r) {
      EXPECT_NEAR(found.lse.value({r}) / plain.lse.value({r}), 1.0, 1e-6);
      EXPECT_NEAR(found.context.value({r, 0}), plain.context.value({r, 0}), 1e-6 + stored_twice);
    }
  }
}

/// Moderate biases are added by the product, others by a stage of their own. Each row has the same
/// bits either way.
TEST_F(AttentionNonfinite, BiasesOfARowChangeNoOtherRow) {
  for (const std::int64_t q_len : {std::int64_t{53}, std::int64_t{150}}) {
    const ProblemShape shape{1, 2, 1, q_len, kNonfiniteShape.kv_len};
    const RandomProblem problem = stored_problem(shape, kHeadDim, kValueDim);
    const Tensor moderate =
        convert(RandomState(7).randn({q_len, kNonfiniteShape.kv_len}), DType::kFloat32);
    const double scale = q_len == 53 ? 0.4 : -0.4;
    const Forward clean = forward(problem.inputs(), {.score = {.scale = scale, .bias = moderate}});
    RowList rows;
    for (const reference::Row& row : all_rows(shape)) {
      if (row.query != 40) rows.push_back(row);
    }
    for (const double number : {-kInfinity, kInfinity, kNan, 1e38, -3e38}) {
      for (const std::int64_t key : {std::int64_t{3}, std::int64_t{530}}) {
        SCOPED_TRACE(testing::Message() << q_len << " queries, " << number << " at " << key);
        Tensor bias = moderate;
        set_value(bias, {40, key}, number);
        const Forward found =
            forward(problem.inputs(), {.score = {.scale = scale, .bias = Tensor(bias)}});
        EXPECT_TRUE(same_bits(rows_of(found, rows), rows_of(clean, rows)));
      }
    }
    Tensor far = moderate;
    for (const std::int64_t key : {std::int64_t{3}, std::int64_t{530}}) {
      set_value(far, {40, key}, -kInfinity);
      set_value(far, {41, key}, std::numeric_limits<float>::lowest());
    }
    expect_exact(problem.inputs(), {.score = {.scale = scale, .bias = far}}, all_rows(shape));
  }
}

/// Tiles at the ends of a block are left out if biases of -inf hide them from all rows of a panel.
/// Rows that see them, and NaN in what no row sees, change no bit of other rows.
TEST_F(AttentionNonfinite, BiasesThatHideTilesChangeNoOtherRow) {
  const auto before = [](std::int64_t q, std::int64_t k, std::int64_t offset) {
    return k <= q + offset;
  };
  const auto near = [](std::int64_t q, std::int64_t k, std::int64_t offset) {
    return std::abs(q + offset - k) < 40;
  };
  const auto padded = [](std::int64_t, std::int64_t k, std::int64_t offset) {
    return k >= offset / 3;
  };
  const auto check = [&](std::int64_t q_len, std::int64_t kv_len, DType type, const auto& sees) {
    SCOPED_TRACE(testing::Message() << q_len << " queries, " << kv_len << " keys");
    const ProblemShape shape{1, 2, 1, q_len, kv_len};
    const RandomProblem problem = stored_problem(shape, kHeadDim, kValueDim);
    Tensor bias(DType::kFloat64, {q_len, kv_len});
    const std::int64_t odd = q_len / 2;  // a row that will see everything
    std::vector<bool> hidden(static_cast<std::size_t>(kv_len), true);
    for_each_index(bias.shape(), [&](const Index& at) {
      const bool seen = sees(at[0], at[1], kv_len - q_len);
      set_value(bias, at, seen ? 0.01 * static_cast<double>((at[0] + at[1]) % 7) : -kInfinity);
      if (seen) hidden[static_cast<std::size_t>(at[1])] = false;
    });
    RandomProblem poisoned = problem;
    for (std::int64_t key = 0; key < kv_len; ++key) {
      if (!hidden[static_cast<std::size_t>(key)]) continue;
      set_value(poisoned.key, {0, 0, key, 0}, kNan);
      set_value(poisoned.value, {0, 0, key, 3}, kNan);
    }
    const AttentionOptions options{.score = {.bias = convert(bias, type)}};
    const Forward clean = forward(problem.inputs(), options);
    EXPECT_TRUE(same_bits(forward(poisoned.inputs(), options), clean));
    expect_exact(problem.inputs(), options, some_rows(shape, 12, 5));

    RowList others;
    for (const reference::Row& row : all_rows(shape)) {
      if (row.query != odd) others.push_back(row);
    }
    for (std::int64_t key = 0; key < kv_len; ++key) set_value(bias, {odd, key}, 0.5);
    const Forward found = forward(problem.inputs(), {.score = {.bias = convert(bias, type)}});
    if (!others.empty()) {
      EXPECT_TRUE(same_bits(rows_of(found, others), rows_of(clean, others)));
    }
  };
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t q_len : {1, 2, 3, 8, 17, 33, 49, 96, 150}) {
      for (const std::int64_t kv_len : {150, 210, 550}) {
        if (type != DType::kFloat32 && kv_len != 210) continue;
        check(q_len, kv_len, type, before);
        check(q_len, kv_len, type, near);
        check(q_len, kv_len, type, padded);
      }
    }
  }
}

TEST_F(AttentionNonfinite, PositionBiasesOfADistanceChangeNoOtherRow) {
  // Buckets of one distance each, up to 255 keys before the query; only the last rows see those
  // beyond 200.
  const ProblemShape shape{1, 2, 1, 150, 250};
  const RandomProblem problem = stored_problem(shape, kHeadDim, kValueDim);
  const auto with_table = [&](const Tensor& table) {
    return AttentionOptions{
        .mask = causal(),
        .score = {.relative =
                      RelativeTable{.table = table, .bidirectional = false, .max_distance = 1000}},
        .alignment = Alignment::offset(100)};
  };
  const Tensor moderate = convert(RandomState(8).randn({512, shape.q_heads}), DType::kFloat32);
  const Forward clean = forward(problem.inputs(), with_table(moderate));
  RowList see, see_not;
  for (const reference::Row& row : all_rows(shape)) {
    (row.query + 100 < 200 ? see_not : see).push_back(row);
  }
  for (const double number : {-kInfinity, kInfinity, kNan, 1e38, -3e38}) {
    SCOPED_TRACE(number);
    Tensor table = moderate;
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      set_value(table, {200, head}, number);
    }
    const Forward found = forward(problem.inputs(), with_table(table));
    EXPECT_TRUE(same_bits(rows_of(found, see_not), rows_of(clean, see_not)));
    EXPECT_FALSE(same_bits(rows_of(found, see), rows_of(clean, see)));
  }
}

}  // namespace
}  // namespace fovea::test
