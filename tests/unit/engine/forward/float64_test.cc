// SPDX-License-Identifier: Apache-2.0
//
// attention_forward in float64 is bitwise equal to the reference, for any options, layout and
// number of threads.

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/reference.h"

#include "support/forward.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kFloat64Shape{2, 4, 2, 37, 50};

void same_as_reference(const reference::Inputs& in, AttentionOptions options) {
  const reference::Steps steps = reference::attention_steps(in, options);
  for (const int threads : {1, 2, 3}) {
    options.execution.threads = threads;
    const Forward found = forward(in, options);
    EXPECT_TRUE(same_bits(found.context, steps.context)) << threads;
    EXPECT_TRUE(same_bits(found.lse, steps.lse)) << threads;
  }
}

TEST(AttentionFloat64, MatchesTheReferenceBitForBit) {
  const RandomProblem p(kFloat64Shape, 9, 7);
  const Tensor bias = RandomState(2).randn({kFloat64Shape.q_len, kFloat64Shape.kv_len});
  const Tensor table = RandomState(3).randn({32, 4});
  same_as_reference(p.inputs(), {});
  same_as_reference(p.inputs(), {.mask = causal() & key_lengths({50, 20}),
                                 .score = {.scale = 2.0, .softcap = 3.0, .bias = bias}});
  same_as_reference(p.inputs(), {.mask = window(8, 1) | prefix(3),
                                 .score = {.alibi = Alibi{},
                                           .relative = RelativeTable{table},
                                           .sinks = {0, 1, -HUGE_VAL, 3}}});
  same_as_reference(p.inputs(), {.mask = causal(), .alignment = Alignment::offset(-40)});
}

TEST(AttentionFloat64, AnyLayout) {
  const Shape shape{2, 37, 4, 9};
  RandomState random(4);
  const Tensor q = random.randn(shape), k = random.randn({2, 50, 2, 9}),
               v = random.randn({2, 50, 2, 7});
  same_as_reference(
      {q.view().transposed(1, 2), k.view().transposed(1, 2), v.view().transposed(1, 2)},
      {.mask = causal()});
}

TEST(AttentionFloat64, PackedSequences) {
  const RandomProblem p({1, 4, 2, 37, 50}, 9, 7);
  same_as_reference(p.inputs(),
                    {.mask = causal(), .sequences = {{0, 0, 20, 21, 37}, {0, 5, 30, 30, 50}}});
}

TEST(AttentionFloat64, NonfiniteValuesAndEmptyExtents) {
  RandomProblem p(kFloat64Shape, 9, 7);
  p.value.at<double>({1, 1, 40, 2}) = HUGE_VAL;
  p.value.at<double>({1, 0, 41, 2}) = -HUGE_VAL;
  p.key.at<double>({0, 1, 45, 0}) = -HUGE_VAL;
  for (const Mask& mask : {causal(), prefix(0), window(1, 0)}) {
    same_as_reference(p.inputs(), {.mask = mask});
  }
  for (const ProblemShape& shape :
       {ProblemShape{0, 4, 2, 3, 5}, {2, 0, 0, 3, 5}, {2, 4, 2, 0, 5}, {2, 4, 2, 3, 0}}) {
    const RandomProblem empty(shape, 9, 7);
    same_as_reference(empty.inputs(), {});
  }
  same_as_reference(RandomProblem(kFloat64Shape, 0, 7).inputs(), {});
  same_as_reference(RandomProblem(kFloat64Shape, 9, 0).inputs(), {});
}

TEST(AttentionFloat64, EachOutputIsTheSameAloneAndNeedsNoWorkspace) {
  const RandomProblem p(kFloat64Shape, 9, 7);
  EXPECT_EQ(attention_forward_workspace(p.query, p.key, p.value, {}), 0U);
  const Forward both = forward(p.inputs());
  Forward one{Tensor(DType::kFloat64, both.context.shape()),
              Tensor(DType::kFloat64, both.lse.shape())};
  attention_forward(p.query, p.key, p.value, {}, {.context = one.context});
  attention_forward(p.query, p.key, p.value, {}, {.lse = one.lse});
  EXPECT_TRUE(same_bits(one, both));
}

}  // namespace
}  // namespace fovea::test
