// SPDX-License-Identifier: Apache-2.0
//
// Layouts and types of gradients: bitwise equal for all strides, no access outside the elements,
// and mixed types that match the same values in float32.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/mask.h"
#include "fovea/random.h"

#include "kernels/backward/backward.h"
#include "support/backward.h"
#include "support/guarded_memory.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::test {
namespace {

constexpr ProblemShape kLayoutShape{2, 4, 2, 53, 170};
constexpr std::int64_t kLayoutHeadDim = 9, kLayoutValueDim = 18;

/// A tensor within a larger buffer whose gaps hold kUntouched.
class Placed {
 public:
  enum class Order : std::uint8_t { kHeadsFirst, kLengthFirst, kReversed };

  /// `gap` elements follow each row. kLengthFirst stores [batch, length, heads, dim]; kReversed has
  /// negative strides in all but the last dimension.
  Placed(const Tensor& source, Order order, std::int64_t gap)
      : memory_(source.dtype(), {3 + source.size() / last_of(source) * (last_of(source) + gap)}) {
    fill(memory_, kUntouched);
    const Shape& shape = source.shape();
    const int rank = shape.rank();
    const bool rows = rank > 1;
    Shape wide = shape;
    wide[rank - 1] += gap;
    Strides strides = contiguous_strides(wide);
    if (order == Order::kLengthFirst && rank == 4) {
      strides[2] = wide[1] * wide[3];
      strides[1] = wide[3];
    }
    std::int64_t first = 1;
    if (order == Order::kReversed && rows) {
      for (int dim = 0; dim + 1 < rank; ++dim) {
        first += (shape[dim] - 1) * strides[dim];
        strides[dim] = -strides[dim];
      }
    }
    view_ = laid_over(MutableTensorView(memory_), first, shape, strides);
    for_each_index(shape, [&](const Index& at) { copy_element(source, at, view_, at); });
  }

  const MutableTensorView& view() const { return view_; }

  /// Returns true if everything outside the elements is unchanged.
  bool gaps_are_untouched() const {
    Tensor rest = memory_;
    const std::int64_t first = (static_cast<const std::byte*>(view_.data()) -
                                static_cast<const std::byte*>(memory_.view().data())) /
                               static_cast<std::int64_t>(dtype_size(memory_.dtype()));
    fill(laid_over(MutableTensorView(rest), first, view_.shape(), view_.strides()), kUntouched);
    return all_are(rest, kUntouched);
  }

 private:
  static std::int64_t last_of(const Tensor& tensor) { return tensor.extent(tensor.rank() - 1); }

  Tensor memory_;
  MutableTensorView view_;
};

/// Returns options that have every optional gradient.
AttentionOptions full_options() {
  return {.mask = causal(),
          .score = {.bias = convert(RandomState(4).randn({4, 53, 170}), DType::kFloat32),
                    .relative = RelativeTable{RandomState(6).randn({32, 4})},
                    .sinks = {0, 1, -1, 2}}};
}

class AttentionBackwardLayout : public testing::Test {
 protected:
  RandomProblem problem_ = stored_problem(kLayoutShape, kLayoutHeadDim, kLayoutValueDim);
  AttentionOptions options_ = full_options();
  Forward results_ = forward(problem_.inputs(), options_);
  ResultLoss loss_ = random_loss(problem_.inputs());
};

/// Heads of several tensors side by side in the rows of one matrix, as written by a fused
/// projection.
struct SharedRows {
  std::int64_t batch, length, width;
  Tensor rows{DType::kFloat32, {batch, length, width}};

  MutableTensorView heads(std::int64_t first, std::int64_t count, std::int64_t dim) {
    return {rows.view().address({0, 0, first}),
            DType::kFloat32,
            {batch, count, length, dim},
            {length * width, dim, width, 1}};
  }
};

TEST(AttentionBackwardSharedRows, QueryKeyAndValueInOneMatrixGradientsInAnother) {
  for (const std::int64_t batch : {1, 2}) {
    for (const std::int64_t length : {1, 2, 53}) {
      constexpr std::int64_t kDim = 5, kHeads = 4, kKeyHeads = 2;
      const ProblemShape shape{batch, kHeads, kKeyHeads, length, length};
      const RandomProblem problem(shape, kDim, kDim);
      constexpr std::int64_t kWidth = (kHeads + 2 * kKeyHeads) * kDim;
      SharedRows inputs{batch, length, kWidth}, gradients{batch, length, kWidth};
      const auto parts = [&](SharedRows& of) {
        return std::array<MutableTensorView, 3>{of.heads(0, kHeads, kDim),
                                                of.heads(kHeads * kDim, kKeyHeads, kDim),
                                                of.heads(6 * kDim, kKeyHeads, kDim)};
      };
      const auto in = parts(inputs), out = parts(gradients);
      const Tensor* const sources[] = {&problem.query, &problem.key, &problem.value};
      std::array<Tensor, 3> apart;
      for (std::size_t i = 0; i < 3; ++i) {
        apart[i] = convert(*sources[i], DType::kFloat32);
        for_each_index(apart[i].shape(),
                       [&](const Index& at) { set_value(in[i], at, apart[i].value(at)); });
      }
      Tensor context(DType::kFloat32, apart[0].shape());
      Tensor lse(DType::kFloat32, {batch, kHeads, length});
      attention_forward(in[0], in[1], in[2], {}, {context, lse});
      const Tensor grad = convert(RandomState(5).randn(context.shape()), DType::kFloat32);
      attention_backward({in[0], in[1], in[2], context, lse, grad}, {}, {out[0], out[1], out[2]});
      std::array<Tensor, 3> expected = {apart[0], apart[1], apart[2]};
      attention_backward({apart[0], apart[1], apart[2], context, lse, grad}, {},
                         {expected[0], expected[1], expected[2]});
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(max_difference(out[i], expected[i]), 0.0) << length << ", " << i;
      }
    }
  }
}

TEST(AttentionBackwardSharedRows, OverlapOfOneElementIsRejected) {
  SharedRows inputs{2, 7, 60}, gradients{2, 7, 60};
  const Tensor context(DType::kFloat32, {2, 4, 7, 5});
  Tensor lse(DType::kFloat32, {2, 4, 7});
  std::ranges::fill(lse.span<float>(), std::log(7.0f));  // for seven scores of 0
  const auto message = [&](std::int64_t query, std::int64_t key, std::int64_t value) {
    return message_of([&] {
      attention_backward(
          {inputs.heads(0, 4, 5), inputs.heads(20, 4, 5), inputs.heads(40, 4, 5), context, lse,
           context},
          {},
          {gradients.heads(query, 4, 5), gradients.heads(key, 4, 5), gradients.heads(value, 4, 5)});
    });
  };
  EXPECT_EQ(message(0, 20, 40), "no error");
  EXPECT_EQ(message(40, 20, 0), "no error");
  EXPECT_EQ(message(0, 19, 40),
            "grad_key: expected memory of its own, got some that grad_query uses");
  EXPECT_EQ(message(0, 20, 39),
            "grad_value: expected memory of its own, got some that grad_key uses");
  // The end of a row coincides with the beginning of the next.
  EXPECT_EQ(message(0, 20, 41),
            "grad_value: expected memory of its own, got some that grad_query uses");
}

TEST_F(AttentionBackwardLayout, AnyStridesGiveTheSameBits) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    reference::Gradients expected =
        backward_of(problem_.inputs(), results_, options_, loss_, {}, type);
    for (const Placed::Order order :
         {Placed::Order::kHeadsFirst, Placed::Order::kLengthFirst, Placed::Order::kReversed}) {
      for (const std::int64_t gap : {0, 1, 7}) {
        SCOPED_TRACE(testing::Message() << dtype_name(type) << ", order " << static_cast<int>(order)
                                        << ", gap " << gap);
        const auto placed = [&](const Tensor& tensor) { return Placed(tensor, order, gap); };
        const Placed query = placed(problem_.query), key = placed(problem_.key),
                     value = placed(problem_.value), context = placed(results_.context),
                     lse = placed(results_.lse), grad_context = placed(loss_.context),
                     grad_lse = placed(loss_.lse);
        reference::Gradients fresh = fresh_gradients(problem_.inputs(), options_, {}, type);
        const Placed of_query = placed(fresh.query), of_key = placed(fresh.key),
                     of_value = placed(fresh.value), of_bias = placed(fresh.bias),
                     of_relative = placed(fresh.relative), of_sinks = placed(fresh.sinks);
        attention_backward({query.view(), key.view(), value.view(), context.view(), lse.view(),
                            grad_context.view(), grad_lse.view()},
                           options_,
                           {of_query.view(), of_key.view(), of_value.view(), of_bias.view(),
                            of_relative.view(), of_sinks.view()});
        const Placed* const found[] = {&of_query, &of_key,      &of_value,
                                       &of_bias,  &of_relative, &of_sinks};
        for (std::size_t i = 0; i < std::size(found); ++i) {
          EXPECT_TRUE(same_bits(found[i]->view(), expected.*kGradients[i].member))
              << kGradients[i].name;
          EXPECT_TRUE(found[i]->gaps_are_untouched()) << kGradients[i].name;
        }
      }
    }
  }
}

TEST_F(AttentionBackwardLayout, BiasGradientWithStridedLastDimension) {
  const auto expected = backward_of(problem_.inputs(), results_, options_, loss_, {}, storage());
  Tensor turned(DType::kFloat32, {170, 53, 4});
  reference::Gradients fresh = fresh_gradients(problem_.inputs(), options_, {}, storage());
  AttentionGradients views = views_of(fresh);
  views.grad_bias = MutableTensorView(turned).transposed(0, 2);
  attention_backward(backward_inputs(problem_.inputs(), results_, loss_), options_, views);
  EXPECT_TRUE(same_bits(views.grad_bias, expected.bias));
}

TEST_F(AttentionBackwardLayout, StaysWithinItsElements) {
  for (const Side side : {Side::kBefore, Side::kAfter}) {
    for (const std::int64_t gap : {0, 3}) {
      for (const auto& [q_len, kv_len] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {53, 170}, {48, 128}, {7, 33}}) {
        for (const auto& [head_dim, value_dim] :
             {std::pair<std::int64_t, std::int64_t>{1, 1}, {9, 18}, {16, 33}, {64, 64}}) {
          const RandomProblem p = stored_problem({1, 2, 1, q_len, kv_len}, head_dim, value_dim);
          const ResultLoss loss = random_loss(p.inputs());
          const Tensor bias = convert(RandomState(4).randn({2, q_len, kv_len}),
                                      gap == 0 ? DType::kFloat32 : DType::kBFloat16);
          const GuardedTensor guarded_bias(bias, side, gap);
          const AttentionOptions options{.mask = causal(),
                                         .score = {.bias = TensorView(guarded_bias.view())}};
          const Forward results = forward(p.inputs(), options);
          reference::Gradients fresh = fresh_gradients(p.inputs(), options, {}, storage());
          const GuardedTensor query(p.query, side, gap), key(p.key, side, gap),
              value(p.value, side, gap), context(results.context, side, gap),
              lse(results.lse, side, gap), grad_context(loss.context, side, gap),
              grad_lse(loss.lse, side, gap), of_query(fresh.query, side, gap),
              of_key(fresh.key, side, gap), of_value(fresh.value, side, gap),
              of_bias(fresh.bias, side, gap);
          attention_backward({query.view(), key.view(), value.view(), context.view(), lse.view(),
                              grad_context.view(), grad_lse.view()},
                             options,
                             {of_query.view(), of_key.view(), of_value.view(), of_bias.view()});
          const auto expected = backward_of(p.inputs(), results, options, loss, {}, storage());
          EXPECT_TRUE(same_bits(of_query.view(), expected.query));
          EXPECT_TRUE(same_bits(of_key.view(), expected.key));
          EXPECT_TRUE(same_bits(of_value.view(), expected.value));
          EXPECT_TRUE(same_bits(of_bias.view(), expected.bias));
        }
      }
    }
  }
}

// ---- Types --------------------------------------------------------------------------------------

constexpr std::array kTypes{DType::kFloat32, DType::kBFloat16, DType::kFloat16};

/// All 81 combinations, except those computed in bfloat16 pairs: gradients match those of the same
/// values in float32, and 16-bit gradients are rounded once.
TEST(AttentionBackwardTypes, EveryCombinationMatchesFloat32) {
  const RandomProblem p({1, 2, 1, 50, 40}, 9, 18);
  ResultLoss loss = random_loss(p.inputs(), true, 5, DType::kFloat32);
  const AttentionOptions options{.mask = causal()};
  int number = 0;
  for (const DType query : kTypes) {
    for (const DType key : kTypes) {
      for (const DType value : kTypes) {
        for (const DType grad : kTypes) {
          const Tensor q = convert(p.query, query), k = convert(p.key, key),
                       v = convert(p.value, value);
          const DType context = kTypes[static_cast<std::size_t>(number) % 3];
          const DType type = kTypes[static_cast<std::size_t>(number++ / 3) % 3];
          Forward results = forward({q, k, v}, options, context);
          ResultLoss of_type = loss;
          of_type.context = convert(loss.context, grad);
          const auto found = backward_of({q, k, v}, results, options, of_type, {}, type);

          kernels::BackwardSetup setup;
          setup.forward.options = &options;
          setup.forward.types = {query, key, value};
          setup.grad_context = grad;
          if (kernels::multiplies_bf16(setup)) continue;
          const auto floats = [](const Tensor& t) { return convert(t, DType::kFloat32); };
          const Tensor fq = floats(q), fk = floats(k), fv = floats(v);
          results.context = floats(results.context);
          of_type.context = floats(of_type.context);
          const auto expected =
              backward_of({fq, fk, fv}, results, options, of_type, {}, DType::kFloat32);
          EXPECT_TRUE(same_bits(found.query, convert(expected.query, type))) << number;
          EXPECT_TRUE(same_bits(found.key, convert(expected.key, type))) << number;
          EXPECT_TRUE(same_bits(found.value, convert(expected.value, type))) << number;
        }
      }
    }
  }
}

TEST(AttentionBackwardTypes, AllBfloat16WithinItsAllowance) {
  const RandomProblem p({1, 4, 2, 70, 200}, 24, 16);
  const Tensor q = convert(p.query, DType::kBFloat16), k = convert(p.key, DType::kBFloat16),
               v = convert(p.value, DType::kBFloat16);
  const ResultLoss loss = random_loss(p.inputs(), true, 5, DType::kBFloat16);
  const AttentionOptions options{.mask = causal()};
  for (const DType type : {DType::kBFloat16, DType::kFloat32}) {
    const Forward results = forward({q, k, v}, options, type);
    expect_exact_gradients(backward_of({q, k, v}, results, options, loss, {}, type), {q, k, v},
                           options, loss, DType::kBFloat16);
  }
}

TEST(AttentionBackwardTypes, Float64MatchesTheReferenceBitForBit) {
  const RandomProblem p({2, 4, 2, 20, 30}, 9, 18);
  const ResultLoss loss = random_loss(p.inputs(), true, 5, DType::kFloat64);
  const AttentionOptions options{.mask = causal(), .score = {.sinks = {0, 1, -1, 2}}};
  EXPECT_TRUE(same_bits(backward(p.inputs(), options, loss),
                        gradients_by_reference(p.inputs(), options, loss, DType::kFloat64)));
}

}  // namespace
}  // namespace fovea::test
