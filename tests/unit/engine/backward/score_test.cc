// SPDX-License-Identifier: Apache-2.0
//
// Gradients through the score options: scale, softcap, custom functions, biases of every layout,
// ALiBi, relative tables and sinks, separately and in random combinations, by the 1x rule.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/limits.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

/// Two blocks of keys; lengths and dims are not multiples of a vector or tile.
constexpr ProblemShape kScoreShape{2, 4, 2, 50, 140};

class AttentionBackwardScore : public testing::Test {
 protected:
  void check(const AttentionOptions& options) {
    expect_exact_backward(problem_.inputs(), options, loss_);
  }

  RandomProblem problem_ = stored_problem(kScoreShape, 7, 5);
  ResultLoss loss_ = random_loss(problem_.inputs());
};

TEST_F(AttentionBackwardScore, Scale) {
  for (const double scale : {0.0, 1.0, -1.0, 0.37, 3.0, 1e-3, 1e-30}) {
    SCOPED_TRACE(scale);
    check({.score = {.scale = scale}});
    check({.mask = causal(), .score = {.scale = -scale, .softcap = 3.0}});
  }
}

TEST_F(AttentionBackwardScore, Softcap) {
  for (const double softcap : {1e-3, 0.5, 3.0, 50.0, 1e6}) {
    for (const double scale : {0.1, 1.0, 40.0}) {
      SCOPED_TRACE(testing::Message() << softcap << ", scale " << scale);
      check({.score = {.scale = scale, .softcap = softcap}});
    }
  }
}

// ---- Custom functions ---------------------------------------------------------------------------

/// A function with a slope of at most 1 that differs between keys.
double squashed(double score, std::int64_t key) {
  return score / (1.0 + std::abs(score)) - 0.25 * static_cast<double>(key % 3);
}
double slope(double score, std::int64_t key) {
  const double by = key % 5 == 0 ? 1.0 : 1.0 + std::abs(score);
  return key % 5 == 0 ? 0.0 : 1.0 / (by * by);
}
double flat_at_fifths(double score, std::int64_t key) {
  return key % 5 == 0 ? 0.5 : squashed(score, key);
}

void change_tile(const ScoreTile& tile, double (*function)(double, std::int64_t)) {
  for (std::int64_t k = 0; k < tile.keys; ++k) {
    float* const scores = tile.scores + k * tile.stride;
    for (std::int64_t i = 0; i < tile.lanes; ++i) {
      const double score = function(static_cast<double>(scores[i]), tile.first.key + k);
      scores[i] = tile.factor * static_cast<float>(score);
    }
  }
}

CustomScore squash() {
  return {.tile = [](const void*, const ScoreTile& tile) { change_tile(tile, flat_at_fifths); },
          .one = [](const void*, double score,
                    const ScorePosition& at) { return flat_at_fifths(score, at.key); },
          .tile_derivative = [](const void*, const ScoreTile& tile) { change_tile(tile, slope); },
          .one_derivative = [](const void*, double score,
                               const ScorePosition& at) { return slope(score, at.key); }};
}

TEST_F(AttentionBackwardScore, CustomFunctions) {
  const Tensor bias = convert(RandomState(65).randn({50, 140}), DType::kFloat32);
  for (const double scale : {0.4, -3.0, 0.0}) {
    SCOPED_TRACE(scale);
    check({.score = {.scale = scale, .custom = squash()}});
    check({.mask = causal(), .score = {.scale = scale, .softcap = 2.0, .custom = squash()}});
    check({.score = {.scale = scale, .custom = squash(), .bias = bias, .alibi = Alibi{}}});
  }
}

// ---- Biases -------------------------------------------------------------------------------------

Tensor random_bias(const Shape& shape, DType dtype, std::uint64_t seed) {
  RandomState random(seed);
  Tensor bias = random.randn(shape);
  for (double& x : bias.span<double>()) x = random.rand() < 0.1 ? -kInfinity : x;
  return convert(bias, dtype);
}

TEST_F(AttentionBackwardScore, BiasesOfEveryBroadcastPattern) {
  for (unsigned pattern = 0; pattern < 16; ++pattern) {
    const Shape shape{
        (pattern & 1) != 0 ? kScoreShape.batch : 1, (pattern & 2) != 0 ? kScoreShape.q_heads : 1,
        (pattern & 4) != 0 ? kScoreShape.q_len : 1, (pattern & 8) != 0 ? kScoreShape.kv_len : 1};
    SCOPED_TRACE(to_string(shape));
    const Tensor bias = random_bias(shape, DType::kFloat32, 20 + pattern);
    if (pattern % 3 == 0) check({.score = {.bias = bias}});
    check({.mask = causal(), .score = {.softcap = 3.0, .bias = bias}});
  }
  for (const Shape& shape :
       {Shape{}, Shape{kScoreShape.kv_len}, Shape{1}, Shape{kScoreShape.q_len, 1},
        Shape{kScoreShape.q_len, kScoreShape.kv_len},
        Shape{kScoreShape.q_heads, 1, kScoreShape.kv_len}}) {
    SCOPED_TRACE(to_string(shape));
    check({.score = {.bias = random_bias(shape, DType::kFloat64, 40)}});
  }
}

TEST_F(AttentionBackwardScore, BiasesOfOneKeyHeadAndSeveralBlocks) {
  const ProblemShape shape{1, 4, 1, 70, 600};
  const RandomProblem p = stored_problem(shape, 16, 16);
  for (const Shape& bias : {Shape{70, 600}, Shape{4, 70, 600}, Shape{4, 1, 600}, Shape{70, 1}}) {
    SCOPED_TRACE(to_string(bias));
    expect_exact_backward(
        p.inputs(), {.mask = causal(), .score = {.bias = random_bias(bias, DType::kFloat32, 9)}});
  }
}

/// Tiles at the ends of a block that biases of -inf hide are left out. The same pairs are hidden by
/// a dense mask, whose rows have one run of visible keys, two, or none.
TEST_F(AttentionBackwardScore, PairsInRunsHiddenByABiasOrAMask) {
  for (const ProblemShape& shape : {kScoreShape, ProblemShape{1, 2, 1, 70, 600}}) {
    const RandomProblem p = stored_problem(shape, 7, 5);
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(kind);
      Tensor bias = convert(RandomState(13).randn({shape.q_len, shape.kv_len}), DType::kFloat32);
      const Tensor open_bias = bias;
      Tensor open(DType::kBool, bias.shape());
      for_each_index(bias.shape(), [&](const Index& at) {
        const std::int64_t ahead = at[1] - at[0] * shape.kv_len / shape.q_len;
        const bool sees = kind == 0   ? ahead <= 0
                          : kind == 1 ? ahead > 20
                          : kind == 2 ? at[1] < 2 || (ahead > -30 && ahead <= 0)
                                      : at[0] % 20 != 3 && std::abs(ahead) < 12;
        open.at<bool>(at) = sees;
        if (!sees) set_value(bias, at, -kInfinity);
      });
      expect_exact_backward(p.inputs(), {.score = {.bias = bias}});
      expect_exact_backward(p.inputs(), {.mask = dense(open), .score = {.bias = open_bias}});
      expect_exact_backward(p.inputs(), {.mask = dense(open)});
    }
  }
}

/// Query gradients of a row do not depend on which tiles the biases of other rows hide.
TEST_F(AttentionBackwardScore, BiasesOfARowChangeNoOtherQueryGradient) {
  for (const ProblemShape& shape :
       {ProblemShape{1, 2, 1, 64, 200}, ProblemShape{1, 2, 2, 100, 300}}) {
    const RandomProblem p = stored_problem(shape, 64, 16);
    const ResultLoss loss = random_loss(p.inputs());
    for (const std::int64_t ahead : {-60, 0, 10, 90}) {
      SCOPED_TRACE(ahead);
      Tensor bias(DType::kFloat32, {shape.q_len, shape.kv_len});
      for_each_index(bias.shape(), [&](const Index& at) {
        const std::int64_t distance = at[1] - at[0] * shape.kv_len / shape.q_len;
        if (distance <= ahead) set_value(bias, at, -kInfinity);
      });
      const reference::Gradients before =
          backward(p.inputs(), {.score = {.bias = Tensor(bias)}}, loss);
      const std::int64_t odd = 25;
      for (std::int64_t key = 0; key < shape.kv_len; ++key) set_value(bias, {odd, key}, 0.5);
      const reference::Gradients after = backward(p.inputs(), {.score = {.bias = bias}}, loss);
      std::int64_t changed = 0;
      for_each_index(before.query.shape(), [&](const Index& at) {
        if (at[2] != odd) changed += before.query.value(at) == after.query.value(at) ? 0 : 1;
      });
      EXPECT_EQ(changed, 0);
    }
  }
}

TEST_F(AttentionBackwardScore, BiasesIn16BitsGiveTheBitsOfFloat32) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Tensor bias = random_bias({kScoreShape.q_len, kScoreShape.kv_len}, dtype, 41);
    const auto gradients = [&](const Tensor& with) {
      return backward(problem_.inputs(), {.mask = causal(), .score = {.bias = with}}, loss_);
    };
    EXPECT_TRUE(same_bits(gradients(bias), gradients(convert(bias, DType::kFloat32))));
  }
}

// ---- Positions and sinks ------------------------------------------------------------------------

std::vector<Alignment> alignments() {
  return {Alignment::bottom_right(), Alignment::top_left(), Alignment::offset(-300),
          Alignment::offset(400), Alignment::offsets({3, 150})};
}

TEST_F(AttentionBackwardScore, Alibi) {
  for (const Alignment& alignment : alignments()) {
    check({.score = {.alibi = Alibi{}}, .alignment = alignment});
    check({.mask = window(9, 200),
           .score = {.alibi = Alibi{{1, -0.01, 0.3, 1e-9}}},
           .alignment = alignment});
  }
}

TEST_F(AttentionBackwardScore, RelativeTables) {
  for (const bool bidirectional : {true, false}) {
    for (const std::int64_t buckets : {4, 33}) {
      for (const Alignment& alignment : alignments()) {
        const RelativeTable table{RandomState(60).randn({buckets, kScoreShape.q_heads}),
                                  bidirectional, 128};
        check({.mask = buckets == 33 ? causal() : Mask(),
               .score = {.relative = table},
               .alignment = alignment});
      }
    }
  }
}

TEST_F(AttentionBackwardScore, RelativeTableMasksDistances) {
  Tensor table = RandomState(61).randn({32, kScoreShape.q_heads});
  for (std::int64_t head = 0; head < kScoreShape.q_heads; ++head) {
    table.at<double>({head + 1, head}) = -kInfinity;
    table.at<double>({20, head}) = -kInfinity;
  }
  check({.score = {.relative = RelativeTable{table}}});
}

TEST_F(AttentionBackwardScore, Sinks) {
  for (const std::vector<double>& sinks :
       {std::vector<double>{-3, 0, 5, 90}, {-kInfinity, 1, 20, -90}, {1e4, -1e4, 1e2, -1e2}}) {
    check({.score = {.sinks = sinks}});
    // Rows without a visible key attend only to the sink.
    check({.mask = causal(), .score = {.sinks = sinks}, .alignment = Alignment::offset(-30)});
  }
}

// ---- Combinations -------------------------------------------------------------------------------

TEST_F(AttentionBackwardScore, RandomCombinations) {
  RandomState random(101);
  const auto either = [&] { return random.randint(0, 2) == 1; };
  for (int number = 0; number < 50; ++number) {
    const ProblemShape shape{random.randint(1, 3), 4, random.randint(1, 3) == 1 ? 2 : 4,
                             random.randint(1, 80), random.randint(1, 200)};
    const std::int64_t head_dim = random.randint(1, 40), value_dim = random.randint(1, 40);
    AttentionOptions options;
    if (either()) options.mask = options.mask & causal();
    if (random.randint(0, 4) == 0) options.mask = options.mask & window(20, 20);
    if (either()) options.score.scale = random.randn({}).value({});
    if (either()) options.score.softcap = 0.5 + 3.0 * random.rand();
    if (random.randint(0, 3) == 0) options.score.custom = squash();
    if (either()) {
      options.score.bias = random_bias({either() ? shape.batch : 1, either() ? 4 : 1,
                                        either() ? shape.q_len : 1, either() ? shape.kv_len : 1},
                                       DType::kFloat32, static_cast<std::uint64_t>(number));
    }
    if (random.randint(0, 3) == 0) options.score.alibi = Alibi{};
    if (either()) options.score.relative = RelativeTable{random.randn({16, 4}), either(), 64};
    if (either()) options.score.sinks = {0, 1, -2, 0.5};
    if (either()) options.dropout = {.probability = 0.2, .seed = 3};
    if (random.randint(0, 3) == 0) options.alignment = Alignment::offset(random.randint(-50, 50));
    SCOPED_TRACE(testing::Message()
                 << "number " << number << ": " << shape.batch << " x " << shape.q_len << " x "
                 << shape.kv_len << ", dims " << head_dim << " and " << value_dim);
    const RandomProblem p = stored_problem(shape, head_dim, value_dim);
    expect_exact_backward(p.inputs(), options, random_loss(p.inputs(), either()));
  }
}

}  // namespace
}  // namespace fovea::test
