// SPDX-License-Identifier: Apache-2.0
//
// The engine accesses only its tensors and its workspace: inputs and outputs next to guard pages,
// outputs within larger buffers, and a workspace of exactly the reported size.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/lenses.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "support/forward.h"
#include "support/guarded_memory.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

struct Size {
  ProblemShape shape;
  std::int64_t head_dim, value_dim;
};

/// Sizes around the tile, vector and panel sizes of every target.
std::vector<Size> sizes() {
  std::vector<Size> all;
  for (const std::int64_t q_len : {1, 3, 16, 47, 49}) {
    for (const std::int64_t kv_len : {1, 5, 8, 17, 63}) {
      for (const std::int64_t dim : {1, 3, 4, 8, 15, 17}) {
        all.push_back({{1, 2, 1, q_len, kv_len}, dim, dim % 7 + 1});
        all.push_back({{1, 2, 1, q_len, kv_len}, dim, dim});
      }
    }
  }
  all.push_back({{2, 2, 2, 50, 600}, 16, 16});
  all.push_back({{1, 1, 1, 97, 150}, 256, 250});
  return all;
}

TEST(AttentionMemory, StaysWithinItsTensors) {
  constexpr std::array kBiasTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat64,
                                  DType::kFloat16};
  std::size_t number = 0;
  for (const Size& size : sizes()) {
    const RandomProblem p = stored_problem(size.shape, size.head_dim, size.value_dim);
    const Tensor bias = convert(RandomState(2).randn({size.shape.q_len, size.shape.kv_len}),
                                kBiasTypes[number++ % kBiasTypes.size()]);
    const AttentionOptions plain{.mask = causal(), .score = {.bias = bias}};
    const Forward expected = forward(p.inputs(), plain);
    for (const Side side : {Side::kBefore, Side::kAfter}) {
      for (const std::int64_t gap : {0, 5}) {
        const GuardedTensor q(p.query, side, gap), k(p.key, side, gap), v(p.value, side, gap);
        const GuardedTensor b(bias, side, gap);
        const GuardedTensor context(Tensor(storage(), expected.context.shape()), side, gap);
        const GuardedTensor lse(Tensor(DType::kFloat32, expected.lse.shape()), side, gap);
        const AttentionOptions options{.mask = causal(), .score = {.bias = TensorView(b.view())}};
        attention_forward(q.view(), k.view(), v.view(), options, {context.view(), lse.view()});
        ASSERT_TRUE(same_bits(context.view(), expected.context));
        ASSERT_TRUE(same_bits(lse.view(), expected.lse));
      }
    }
  }
}

TEST(AttentionMemory, StaysWithinItsWorkspace) {
  for (const Size& size : sizes()) {
    const RandomProblem p = stored_problem(size.shape, size.head_dim, size.value_dim);
    const Tensor open =
        convert(RandomState(3).randint(0, 2, {size.shape.q_len, size.shape.kv_len}), DType::kBool);
    AttentionOptions options{.mask = dense(open), .score = {.softcap = 3.0, .alibi = Alibi{}}};
    const Forward expected = forward(p.inputs(), options);
    const std::size_t bytes = attention_forward_workspace(p.query, p.key, p.value, options);
    const GuardedMemory after(bytes, Side::kAfter), before(bytes, Side::kBefore);
    for (const GuardedMemory* memory : {&after, &before}) {
      options.execution.workspace = {memory->data(), bytes};
      ASSERT_TRUE(same_bits(forward(p.inputs(), options), expected));
    }
  }
}

TEST(AttentionMemory, WorkspaceSufficesWithoutAContext) {
  // If value_dim is small, the tile unit packs more keys at a time without a context. The workspace
  // of other targets is not larger without one.
  for (const std::int64_t head_dim : {64, 233, 513}) {
    const RandomProblem p = stored_problem({1, 1, 1, 200, 700}, head_dim, 5);
    Tensor lse(DType::kFloat32, {1, 1, 200}), maximum(DType::kFloat32, {1, 1, 200});
    const Lenses lenses{.rows = {.maximum = maximum}};
    for (const int threads : {1, 2}) {
      AttentionOptions options{.execution = {.threads = threads}};
      for (const Lenses* const seen : {static_cast<const Lenses*>(nullptr), &lenses}) {
        std::vector<std::byte> workspace(attention_forward_workspace(
            p.query, p.key, p.value, options, seen == nullptr ? Lenses() : *seen));
        options.execution.workspace = workspace;
        EXPECT_EQ(message_of([&] {
                    attention_forward(p.query, p.key, p.value, options,
                                      {.lse = lse, .lenses = seen});
                  }),
                  "no error")
            << head_dim << ", " << threads << " threads";
        options.execution.workspace = {};
      }
    }
  }
}

TEST(AttentionMemory, WritesOnlyTheOutputs) {
  for (const Size& size : sizes()) {
    const RandomProblem p = stored_problem(size.shape, size.head_dim, size.value_dim);
    const Forward expected = forward(p.inputs(), {.mask = causal()});
    // Every second row and column of a larger buffer.
    const ProblemShape& s = size.shape;
    const std::int64_t row = 2 * size.value_dim + 3;
    const std::int64_t lead = 17;
    Tensor context(storage(), {lead + s.batch * s.q_heads * s.q_len * row});
    Tensor lse(DType::kFloat32, {lead + s.batch * s.q_heads * s.q_len * 3});
    fill(context, kUntouched);
    fill(lse, kUntouched);
    const MutableTensorView context_view =
        laid_over(context.view(), lead, expected.context.shape(),
                  {s.q_heads * s.q_len * row, s.q_len * row, row, 1});
    const MutableTensorView lse_view = laid_over(lse.view(), lead, expected.lse.shape(),
                                                 {s.q_heads * s.q_len * 3, s.q_len * 3, 3});
    attention_forward(p.query, p.key, p.value, {.mask = causal()}, {context_view, lse_view});
    ASSERT_TRUE(same_bits(context_view, expected.context));
    ASSERT_TRUE(same_bits(lse_view, expected.lse));
    fill(context_view, kUntouched);
    fill(lse_view, kUntouched);
    ASSERT_TRUE(all_are(context, kUntouched));
    ASSERT_TRUE(all_are(lse, kUntouched));
  }
}

TEST(AttentionMemory, InputsAreNotWritten) {
  const RandomProblem p = stored_problem({2, 4, 2, 50, 70}, 9, 9);
  const RandomProblem copy = p;
  forward(p.inputs(), {.mask = causal()});
  EXPECT_TRUE(same_bits(p.query, copy.query));
  EXPECT_TRUE(same_bits(p.key, copy.key));
  EXPECT_TRUE(same_bits(p.value, copy.value));
}

}  // namespace
}  // namespace fovea::test
