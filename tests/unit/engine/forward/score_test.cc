// SPDX-License-Identifier: Apache-2.0
//
// Score options in the engine: scale, softcap, additive biases of every layout, ALiBi, relative
// tables and sinks, alone and combined.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
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

/// Two blocks of keys; lengths and dims are not multiples of a vector or tile.
constexpr ProblemShape kScoreShape{2, 6, 3, 53, 531};

class AttentionScore : public testing::Test {
 protected:
  void check(const AttentionOptions& options, int rows = 24) {
    expect_exact(problem_.inputs(), options, some_rows(kScoreShape, rows, seed_++));
  }

  RandomProblem problem_ = stored_problem(kScoreShape, 7, 5);
  std::uint64_t seed_ = 1;
};

TEST_F(AttentionScore, Scale) {
  for (const double scale : {0.0, 1.0, -1.0, 0.37, 3.0, 1e-3, 1e-30, 1e-60}) {
    SCOPED_TRACE(scale);
    check({.score = {.scale = scale}});
  }
}

TEST_F(AttentionScore, DefaultScaleIsOneOverTheRootOfHeadDim) {
  const Forward found = forward(problem_.inputs());
  EXPECT_TRUE(same_bits(found, forward(problem_.inputs(), {.score = {.scale = 1 / std::sqrt(7)}})));
}

TEST_F(AttentionScore, Softcap) {
  for (const double softcap : {1e-3, 0.5, 3.0, 50.0, 1e6, 1e30}) {
    for (const double scale : {0.1, 1.0, 40.0}) {
      SCOPED_TRACE(testing::Message() << softcap << ", scale " << scale);
      check({.score = {.scale = scale, .softcap = softcap}});
    }
  }
}

TEST_F(AttentionScore, SoftcapOfARowDoesNotDependOnOtherRows) {
  // Scores far below the cap and scores above it are computed by different instructions. One row is
  // changed from the former to the latter.
  for (const std::int64_t queries : {2, 5, 17, 33, 53}) {
    SCOPED_TRACE(queries);
    const ProblemShape shape{1, 2, 1, queries, 531};
    const AttentionOptions options{.score = {.softcap = 30}};
    RandomProblem problem = stored_problem(shape, 7, 5);
    const Forward before = forward(problem.inputs(), options);
    const std::int64_t changed = queries / 2;
    set_value(problem.query, {0, 1, changed, 3}, 1e4);
    const Forward after = forward(problem.inputs(), options);
    std::int64_t same = 0;
    for (const reference::Row& row : all_rows(shape)) {
      same +=
          after.lse.value({0, row.head, row.query}) == before.lse.value({0, row.head, row.query});
      if (row.head == 1 && row.query == changed) continue;
      for (std::int64_t c = 0; c < 5; ++c) {
        EXPECT_EQ(after.context.value({0, row.head, row.query, c}),
                  before.context.value({0, row.head, row.query, c}));
      }
    }
    EXPECT_EQ(same, 2 * queries - 1);
  }
}

// ---- Additive biases ----------------------------------------------------------------------------

Tensor random_bias(const Shape& shape, DType dtype, std::uint64_t seed) {
  RandomState random(seed);
  Tensor bias = random.randn(shape);
  for (double& x : bias.span<double>()) x = random.rand() < 0.1 ? -kInfinity : x;
  return convert(bias, dtype);
}

TEST_F(AttentionScore, BiasesOfEveryBroadcastPattern) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (unsigned pattern = 0; pattern < 16; ++pattern) {
      const Shape shape{
          (pattern & 1) != 0 ? kScoreShape.batch : 1, (pattern & 2) != 0 ? kScoreShape.q_heads : 1,
          (pattern & 4) != 0 ? kScoreShape.q_len : 1, (pattern & 8) != 0 ? kScoreShape.kv_len : 1};
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + to_string(shape));
      const Tensor bias = random_bias(shape, dtype, 20 + pattern);
      check({.score = {.bias = bias}});
      check({.mask = causal(), .score = {.bias = bias}});
    }
    for (const Shape& shape :
         {Shape{}, Shape{kScoreShape.kv_len}, Shape{1}, Shape{kScoreShape.q_len, 1},
          Shape{kScoreShape.q_len, kScoreShape.kv_len},
          Shape{kScoreShape.q_heads, 1, kScoreShape.kv_len}}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + to_string(shape));
      check({.score = {.bias = random_bias(shape, dtype, 40)}});
    }
  }
}

/// Checks that a view of a bias with any strides gives the same bits as a contiguous copy, in
/// float32 unless it is in float64.
class AttentionBiasLayout : public AttentionScore {
 protected:
  void same_as_contiguous(const TensorView& view) {
    SCOPED_TRACE(dtype_name(view.dtype()));
    Tensor copy{view};
    if (view.dtype() != DType::kFloat64) copy = convert(copy, DType::kFloat32);
    for (const Mask& mask : {Mask(), causal()}) {
      EXPECT_TRUE(same_bits(forward(problem_.inputs(), {.mask = mask, .score = {.bias = view}}),
                            forward(problem_.inputs(), {.mask = mask, .score = {.bias = copy}})));
    }
  }
};

TEST_F(AttentionBiasLayout, AnyStridesGiveTheSameBits) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    const auto size = static_cast<std::int64_t>(dtype_size(dtype));
    const Tensor turned = random_bias({kScoreShape.kv_len, kScoreShape.q_len}, dtype, 50);
    same_as_contiguous(turned.view().transposed(0, 1));

    same_as_contiguous(random_bias({kScoreShape.q_len, kScoreShape.kv_len}, dtype, 54).view());

    const Tensor wide = random_bias({kScoreShape.q_len, kScoreShape.kv_len + 3}, dtype, 51);
    const Shape shape{kScoreShape.q_len, kScoreShape.kv_len};
    const auto* const first = static_cast<const std::byte*>(wide.view().data());
    same_as_contiguous({first + 3 * size, dtype, shape, {kScoreShape.kv_len + 3, 1}});

    const auto* const last = first + (wide.size() - 1) * size;
    same_as_contiguous({last, dtype, shape, {-(kScoreShape.kv_len + 3), -1}});
    same_as_contiguous({first, dtype, shape, {0, 1}});
    same_as_contiguous({first, dtype, shape, {kScoreShape.kv_len + 3, 0}});

    const Tensor sparse = random_bias({kScoreShape.kv_len, 2}, dtype, 52);
    same_as_contiguous({sparse.view().data(), dtype, {kScoreShape.kv_len}, {2}});
    const Tensor heads =
        random_bias({kScoreShape.q_heads, kScoreShape.batch, 1, kScoreShape.kv_len}, dtype, 53);
    same_as_contiguous(heads.view().transposed(0, 1));
  }
}

/// Tiles of -inf are left out only if the biases of a row or of a key are contiguous.
TEST_F(AttentionBiasLayout, HiddenTilesOfAnyStridesGiveTheSameBits) {
  const std::int64_t q_len = kScoreShape.q_len, kv_len = kScoreShape.kv_len;
  const Shape shape{q_len, kv_len};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const auto hidden_where = [&](const Shape& extents, const auto& hides) {
      Tensor bias = random_bias(extents, dtype, 57);
      for_each_index(extents, [&](const Index& at) {
        if (hides(at)) set_value(bias, at, -kInfinity);
      });
      return bias;
    };
    for (const std::int64_t near : {std::int64_t{0}, kv_len / 2}) {
      const auto hides = [&](std::int64_t q, std::int64_t k) {
        const std::int64_t ahead = k - q * kv_len / q_len;
        return ahead > 0 || ahead < -near;
      };
      const Tensor rows = hidden_where(shape, [&](const Index& at) { return hides(at[0], at[1]); });
      same_as_contiguous(rows.view());
      const Tensor columns =
          hidden_where({kv_len, q_len}, [&](const Index& at) { return hides(at[1], at[0]); });
      same_as_contiguous(columns.view().transposed(0, 1));
      const Tensor sparse = hidden_where({q_len, 2 * kv_len},
                                         [&](const Index& at) { return hides(at[0], at[1] / 2); });
      same_as_contiguous({sparse.view().data(), dtype, shape, {2 * kv_len, 2}});
    }
    const Tensor of_keys =
        hidden_where({kv_len}, [&](const Index& at) { return at[0] < 20 || at[0] > kv_len - 40; });
    same_as_contiguous({of_keys.view().data(), dtype, shape, {0, 1}});
    const Tensor of_queries = hidden_where({q_len, 1}, [](const Index& at) { return at[0] != 5; });
    same_as_contiguous({of_queries.view().data(), dtype, shape, {1, 0}});
  }
}

TEST_F(AttentionBiasLayout, FiniteFloat64NumbersStayFinite) {
  Tensor bias = random_bias({kScoreShape.q_len, kScoreShape.kv_len}, DType::kFloat64, 55);
  Tensor clamped(DType::kFloat32, bias.shape());
  const std::array<double, 5> far{-1e300, -3.5e38, 1e-300, -kInfinity, kNan};
  RandomState random(56);
  for (std::int64_t i = 0; i < bias.size(); ++i) {
    double& x = bias.span<double>()[static_cast<std::size_t>(i)];
    // One row in three, because a NaN spoils a row.
    if (i / kScoreShape.kv_len % 3 == 0 && random.rand() < 0.01) {
      x = far[static_cast<std::size_t>(i) % far.size()];
    }
    constexpr double kMost = std::numeric_limits<float>::max();
    const double bounded = std::isfinite(x) ? std::clamp(x, -kMost, kMost) : x;
    clamped.span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(bounded);
  }
  EXPECT_TRUE(same_bits(forward(problem_.inputs(), {.score = {.bias = bias}}),
                        forward(problem_.inputs(), {.score = {.bias = clamped}})));
}

// ---- Position biases ----------------------------------------------------------------------------

std::vector<Alignment> score_alignments() {
  return {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(-700),
          Alignment::offset(900), Alignment::offsets({3, 500})};
}

TEST_F(AttentionScore, Alibi) {
  for (const Alignment& alignment : score_alignments()) {
    check({.score = {.alibi = Alibi{}}, .alignment = alignment});
    check({.mask = window(9, 200),
           .score = {.alibi = Alibi{{0, 1, -0.01, 0.3, 2, 1e-9}}},
           .alignment = alignment});
  }
}

TEST_F(AttentionScore, RelativeTables) {
  for (const bool bidirectional : {true, false}) {
    for (const std::int64_t buckets : {4, 32, 33}) {
      for (const Alignment& alignment : score_alignments()) {
        const RelativeTable table{RandomState(60).randn({buckets, kScoreShape.q_heads}),
                                  bidirectional, 128};
        check({.score = {.relative = table}, .alignment = alignment}, 12);
        check({.mask = causal(), .score = {.relative = table}, .alignment = alignment}, 12);
      }
    }
  }
}

TEST_F(AttentionScore, RelativeTableMasksDistancesAndMayBeFloat32) {
  Tensor table = RandomState(61).randn({32, kScoreShape.q_heads});
  for (std::int64_t head = 0; head < kScoreShape.q_heads; ++head) {
    table.at<double>({head + 1, head}) = -kInfinity;
    table.at<double>({20, head}) = -kInfinity;
  }
  check({.score = {.relative = RelativeTable{table}}});
  check({.score = {.alibi = Alibi{}, .relative = RelativeTable{convert(table, DType::kFloat32)}}});
}

// ---- Sinks --------------------------------------------------------------------------------------

TEST_F(AttentionScore, Sinks) {
  for (const std::vector<double>& sinks : {std::vector<double>{-3, 0, 1, 5, 20, 90},
                                           {-kInfinity, 1, 2, 3, -kInfinity, -90},
                                           {1e4, -1e4, 1e2, -1e2, 1e3, -1e3}}) {
    check({.score = {.sinks = sinks}});
    check({.mask = causal(), .score = {.sinks = sinks}, .alignment = Alignment::offset(-30)});
  }
}

// ---- Custom functions ---------------------------------------------------------------------------

/// A function with a slope of at most 1 that differs between keys.
double squashed(double score, std::int64_t key) {
  return score / (1.0 + std::abs(score)) - 0.25 * static_cast<double>(key % 3);
}

CustomScore squash() {
  return {.tile =
              [](const void*, const ScoreTile& tile) {
                for (std::int64_t k = 0; k < tile.keys; ++k) {
                  float* const scores = tile.scores + k * tile.stride;
                  for (std::int64_t i = 0; i < tile.lanes; ++i) {
                    const double score =
                        squashed(static_cast<double>(scores[i]), tile.first.key + k);
                    scores[i] = tile.factor * static_cast<float>(score);
                  }
                }
              },
          .one = [](const void*, double score,
                    const ScorePosition& at) { return squashed(score, at.key); }};
}

TEST_F(AttentionScore, CustomFunctionReceivesTheScaledScore) {
  const Tensor bias = random_bias({kScoreShape.q_len, kScoreShape.kv_len}, DType::kFloat32, 65);
  for (const double scale : {0.4, -3.0, 0.0}) {
    SCOPED_TRACE(scale);
    check({.score = {.scale = scale, .custom = squash()}});
    check({.mask = causal(), .score = {.scale = scale, .softcap = 2.0, .custom = squash()}});
    check({.score = {.scale = scale, .custom = squash(), .bias = bias, .alibi = Alibi{}}});
  }
}

// ---- Combinations -------------------------------------------------------------------------------

TEST_F(AttentionScore, EveryPairOfOptionsUnderMasks) {
  using Change = std::function<void(ScoreOptions&)>;
  const Tensor full =
      random_bias({2, 6, kScoreShape.q_len, kScoreShape.kv_len}, DType::kFloat32, 70);
  const Tensor by_key = random_bias({kScoreShape.kv_len}, DType::kFloat64, 71);
  const Tensor table = RandomState(72).randn({32, kScoreShape.q_heads});
  const std::vector<Change> changes{
      [](ScoreOptions& score) { score.scale = 0.9; },
      [](ScoreOptions& score) { score.softcap = 2.0; },
      [&](ScoreOptions& score) { score.bias = full; },
      [&](ScoreOptions& score) { score.bias = by_key; },
      [](ScoreOptions& score) { score.alibi = Alibi{}; },
      [&](ScoreOptions& score) { score.relative = RelativeTable{table}; },
      [](ScoreOptions& score) { score.sinks = {0, 1, 2, -1, -2, 3}; },
  };
  const std::vector<Mask> masks{
      Mask(), causal(), window(100, 20), key_lengths({500, 531}),
      dense(convert(RandomState(73).randint(0, 2, {kScoreShape.q_len, kScoreShape.kv_len}),
                    DType::kBool))};
  for (std::size_t a = 0; a < changes.size(); ++a) {
    for (std::size_t b = a + 1; b < changes.size(); ++b) {
      AttentionOptions options;
      changes[a](options.score);
      changes[b](options.score);
      for (std::size_t m = 0; m < masks.size(); ++m) {
        SCOPED_TRACE(testing::Message() << "options " << a << " and " << b << ", mask " << m);
        options.mask = masks[m];
        check(options, 10);
      }
    }
  }
  AttentionOptions all{.mask = causal() & key_lengths({500, 531})};
  for (const Change& change : changes) change(all.score);
  check(all, 40);
}

TEST_F(AttentionScore, OptionsInSeveralBlocksOfLongRows) {
  const ProblemShape shape{1, 2, 1, 40, 300};
  const RandomProblem p = stored_problem(shape, 256, 256);  // blocks of 128 keys
  const Tensor bias = random_bias({40, 300}, DType::kFloat32, 80);
  expect_exact(p.inputs(),
               {.mask = causal(),
                .score = {.softcap = 5.0, .bias = bias, .alibi = Alibi{}, .sinks = {1, 2}}},
               some_rows(shape, 30));
}

}  // namespace
}  // namespace fovea::test
