// SPDX-License-Identifier: Apache-2.0
//
// Properties of gradients: linear in the loss, bitwise equal when requested separately or together,
// equivariant under permutations of keys, zero where nothing is visible, and empty problems.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention_options.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/backward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kPropertyShape{2, 4, 2, 53, 270};
constexpr std::int64_t kPropertyHeadDim = 9, kPropertyValueDim = 20;

std::vector<AttentionOptions> all_options() {
  Tensor bias = convert(RandomState(4).randn({53, 270}), DType::kFloat32);
  Tensor of_keys = convert(RandomState(5).randn({4, 1, 270}), DType::kFloat32);
  Tensor table = RandomState(6).randn({32, 4});
  return {{},
          {.mask = causal()},
          {.mask = causal(), .score = {.softcap = 2.0, .bias = std::move(bias)}},
          {.score = {.bias = std::move(of_keys),
                     .relative = RelativeTable{std::move(table)},
                     .sinks = {0, 1, -1, 2}}},
          {.mask = window(20, 20), .dropout = {.probability = 0.25, .seed = 4}}};
}

class AttentionBackwardProperties : public testing::Test {
 protected:
  /// Returns float32 gradients from the results of forward().
  reference::Gradients gradients(const AttentionOptions& options, const ResultLoss& loss,
                                 const Asked& asked = {}) const {
    return backward_of(problem_.inputs(), forward(problem_.inputs(), options), options, loss, asked,
                       DType::kFloat32);
  }

  RandomProblem problem_ = stored_problem(kPropertyShape, kPropertyHeadDim, kPropertyValueDim);
  ResultLoss loss_ = random_loss(problem_.inputs());
};

TEST_F(AttentionBackwardProperties, DoubleLossDoublesGradientsBitForBit) {
  const auto doubled = [](const Tensor& tensor) {
    Tensor twice = tensor;
    change_all(twice, [](double x) { return 2.0 * x; });
    return twice;
  };
  for (const AttentionOptions& options : all_options()) {
    reference::Gradients expected = gradients(options, loss_);
    for (const auto& [name, member] : kGradients) {
      if ((expected.*member).defined()) expected.*member = doubled(expected.*member);
    }
    EXPECT_TRUE(
        same_bits(gradients(options, {doubled(loss_.context), doubled(loss_.lse)}), expected));
  }
}

TEST_F(AttentionBackwardProperties, EachGradientIsTheSameAlone) {
  for (const AttentionOptions& options : all_options()) {
    const Forward results = forward(problem_.inputs(), options);
    const auto of = [&](const Asked& asked) {
      return backward_of(problem_.inputs(), results, options, loss_, asked, DType::kFloat32);
    };
    const reference::Gradients all = of({});
    for (const unsigned set : {1U, 2U, 4U, 8U, 16U, 32U, 7U, 3U, 9U, 54U}) {
      const auto has = [&](unsigned bit) { return (set >> bit & 1U) != 0; };
      const reference::Gradients some = of({has(0), has(1), has(2), has(3), has(4), has(5)});
      for (unsigned i = 0; i < 6; ++i) {
        const Tensor& found = some.*kGradients[i].member;
        if (!found.defined()) continue;
        EXPECT_TRUE(same_bits(found, all.*kGradients[i].member))
            << "gradient of " << kGradients[i].name << " in set " << set;
      }
    }
  }
}

TEST_F(AttentionBackwardProperties, NoGradientsRequested) {
  for (const AttentionOptions& options : all_options()) {
    EXPECT_NO_THROW(gradients(options, loss_, {false, false, false, false, false, false}));
  }
}

TEST_F(AttentionBackwardProperties, OmittedLseGradientEqualsZeros) {
  for (const AttentionOptions& options : all_options()) {
    ResultLoss zeros = random_loss(problem_.inputs());
    fill(zeros.lse, 0.0);
    EXPECT_TRUE(same_bits(gradients(options, random_loss(problem_.inputs(), false)),
                          gradients(options, zeros)));
  }
}

TEST_F(AttentionBackwardProperties, PermutedKeysPermuteTheirGradients) {
  const std::int64_t kv_len = kPropertyShape.kv_len;
  const auto moved = [&](std::int64_t key) { return (key * 7 + 3) % kv_len; };  // gcd(7, 270) = 1
  const auto permuted = [&](const Tensor& tensor) {
    Tensor result(tensor.dtype(), tensor.shape());
    for_each_index(tensor.shape(), [&](const Index& at) {
      Index to = at;
      to[2] = moved(at[2]);
      copy_element(tensor, at, result, to);
    });
    return result;
  };
  const Forward results = forward(problem_.inputs());
  const auto expected = backward_of(problem_.inputs(), results, {}, loss_, {}, DType::kFloat32);
  const Tensor key = permuted(problem_.key), value = permuted(problem_.value);
  const reference::Inputs in{problem_.query, key, value};
  const auto found = backward_of(in, results, {}, loss_, {}, DType::kFloat32);
  EXPECT_TRUE(same_bits(found.key, permuted(expected.key)));
  EXPECT_TRUE(same_bits(found.value, permuted(expected.value)));
}

TEST_F(AttentionBackwardProperties, MaskedQueriesAndKeysHaveZeroGradients) {
  // Queries 20 to 39 see no key; keys 100 to 199 are visible to no query.
  Tensor open(DType::kBool, {kPropertyShape.q_len, kPropertyShape.kv_len});
  const auto row_sees = [](std::int64_t q) { return q < 20 || q >= 40; };
  const auto key_seen = [](std::int64_t k) { return k < 100 || k >= 200; };
  for_each_index(open.shape(),
                 [&](const Index& at) { open.at<bool>(at) = row_sees(at[0]) && key_seen(at[1]); });
  const Tensor bias = convert(RandomState(4).randn({53, 270}), DType::kFloat32);
  const auto found = gradients({.mask = dense(open), .score = {.bias = bias}}, loss_);
  const auto zero_where = [](const Tensor& tensor, int dim, const auto& counts) {
    bool right = true;
    for_each_index(tensor.shape(), [&](const Index& at) {
      const double x = tensor.value(at);
      right = right && (counts(at[dim]) ? x != 0.0 : x == 0.0);
    });
    return right;
  };
  EXPECT_TRUE(zero_where(found.query, 2, row_sees));
  EXPECT_TRUE(zero_where(found.key, 2, key_seen));
  EXPECT_TRUE(zero_where(found.value, 2, key_seen));
  for_each_index(found.bias.shape(), [&](const Index& at) {
    EXPECT_EQ(found.bias.value(at) != 0.0, open.at<bool>(at)) << to_string(at);
  });
}

/// If the loss depends only on the context, adding a constant to all scores of a row changes
/// nothing.
TEST_F(AttentionBackwardProperties, BiasGradientsOfARowSumToZero) {
  const Tensor bias = convert(RandomState(4).randn({2, 4, 53, 270}), DType::kFloat32);
  const auto found =
      gradients({.mask = causal(), .score = {.bias = bias}}, random_loss(problem_.inputs(), false));
  // The tolerance covers the rounding of the stored context, which affects delta.
  const double tolerance = 100 * rounding_of(storage());
  for_each_index({2, 4, 53}, [&](const Index& at) {
    double sum = 0.0;
    for (std::int64_t key = 0; key < 270; ++key) {
      sum += found.bias.value({at[0], at[1], at[2], key});
    }
    EXPECT_NEAR(sum, 0.0, tolerance) << to_string(at);
  });
}

// ---- Empty problems -----------------------------------------------------------------------------

TEST(AttentionBackwardEmpty, ZeroExtentsGiveZeroGradients) {
  struct Sizes {
    ProblemShape shape;
    std::int64_t head_dim, value_dim;
  };
  for (const Sizes& sizes :
       {Sizes{{0, 4, 2, 5, 6}, 7, 8}, Sizes{{2, 0, 2, 5, 6}, 7, 8}, Sizes{{2, 0, 0, 5, 6}, 7, 8},
        Sizes{{2, 4, 2, 0, 6}, 7, 8}, Sizes{{2, 4, 2, 5, 0}, 7, 8}, Sizes{{2, 4, 2, 5, 6}, 0, 8},
        Sizes{{2, 4, 2, 5, 6}, 7, 0}, Sizes{{2, 4, 2, 5, 6}, 0, 0}, Sizes{{2, 4, 2, 0, 0}, 0, 0},
        Sizes{{2, 4, 2, 0, 900}, 3, 3}}) {
    const ProblemShape& s = sizes.shape;
    SCOPED_TRACE(testing::Message()
                 << s.batch << " x " << s.q_heads << " x " << s.kv_heads << " x " << s.q_len
                 << " x " << s.kv_len << ", dims " << sizes.head_dim << " and " << sizes.value_dim);
    const RandomProblem p = stored_problem(s, sizes.head_dim, sizes.value_dim);
    std::vector<AttentionOptions> all{{}, {.mask = causal()}};
    all.push_back({.score = {.bias = Tensor(DType::kFloat32, {s.q_len, s.kv_len}),
                             .relative = RelativeTable{Tensor(DType::kFloat64, {8, s.q_heads})},
                             .sinks = std::vector<double>(static_cast<std::size_t>(s.q_heads))}});
    all.push_back({.score = {.bias = Tensor(DType::kFloat32, {1})}});
    for (const AttentionOptions& options : all) {
      // All gradients are zero, except with a dim of 0 and non-empty lengths, where weights are
      // uniform.
      expect_exact_backward(p.inputs(), options);
      for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
        const ResultLoss loss = random_loss(p.inputs());
        const auto found =
            backward_of(p.inputs(), forward(p.inputs(), options), options, loss, {}, type);
        if (s.q_heads * s.q_len * s.kv_len * s.batch > 0) continue;
        for (const auto& [name, member] : kGradients) {
          if (!(found.*member).defined() || member == &reference::Gradients::sinks) continue;
          EXPECT_TRUE(all_are(found.*member, 0.0)) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::test
