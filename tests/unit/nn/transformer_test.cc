// SPDX-License-Identifier: Apache-2.0
//
// Multi-head attention layers, transformer blocks and stacks: gradients against finite differences,
// masking, parameter names, determinism, and token-by-token decoding.

#include "fovea/nn/transformer.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "fovea/error.h"
#include "fovea/nn/transformer_decoding.h"
#include "fovea/random.h"

#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::nn {
namespace {

using test::message_of;

const std::vector<std::int64_t> kLengths = {5, 3};

TEST(NnMultiHead, SelfAttentionGradientsMatchFiniteDifferences) {
  const Rotary interleaved{.pairs = Rotary::Pairs::kInterleaved};
  for (const MultiHeadAttentionOptions& options : std::vector<MultiHeadAttentionOptions>{
           {.width = 4, .heads = 1},
           {.width = 8, .heads = 4, .kv_heads = 2},
           {.width = 8, .heads = 2, .dropout = 0.3, .bias = false},
           {.width = 8, .heads = 2, .rotary = interleaved}}) {
    for (const Mask& mask : {Mask(), causal(), key_lengths(kLengths)}) {
      Model model(1, DType::kFloat64);
      MultiHeadAttention layer(model.scope(), options);
      test::draw_parameters(model);
      model.train(1);
      Tensor x = RandomState(2).randn({2, 5, options.width});
      test::expect_gradients(
          {model,
           {&x},
           [&] { return TensorView(layer.forward(x, mask)); },
           [&](const TensorView& grad) { return std::vector<TensorView>{layer.backward(grad)}; }});
    }
  }
}

TEST(NnMultiHead, CrossAttentionGradientsMatchFiniteDifferences) {
  for (const std::int64_t kv_heads : {2, 1}) {
    Model model(1, DType::kFloat64);
    MultiHeadAttention layer(model.scope(), {.width = 6, .heads = 2, .kv_heads = kv_heads});
    test::draw_parameters(model);
    Tensor x = RandomState(2).randn({2, 3, 6}), memory = RandomState(3).randn({2, 5, 6});
    Tensor grad_memory(DType::kFloat64, memory.shape());
    test::expect_gradients(
        {model,
         {&x, &memory},
         [&] { return TensorView(layer.forward(x, memory, key_lengths(kLengths))); },
         [&](const TensorView& grad) {
           const TensorView grad_x = layer.backward(grad, grad_memory);
           return std::vector<TensorView>{grad_x, grad_memory};
         }});
  }
}

TEST(NnMultiHead, WeightsMatchTheReference) {
  Model model(1, DType::kFloat64);
  MultiHeadAttention layer(model.scope(), {.width = 8, .heads = 4, .kv_heads = 2});
  const Tensor x = RandomState(2).randn({2, 5, 8});
  layer.forward(x, causal() & key_lengths(kLengths));
  const Tensor weights = layer.weights();
  ASSERT_EQ(weights.shape(), Shape({2, 4, 5, 5}));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 5; ++i) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < 5; ++j) {
        sum += weights.value({b, 1, i, j});
        if (j > i || j >= kLengths[static_cast<std::size_t>(b)]) {
          EXPECT_EQ(weights.value({b, 1, i, j}), 0.0);
        }
      }
      EXPECT_NEAR(sum, 1.0, 1e-14);
    }
  }
}

TEST(NnMultiHead, InvalidArguments) {
  Model model;
  const auto made = [&](const MultiHeadAttentionOptions& options) {
    return message_of([&] { MultiHeadAttention layer(model.scope("a"), options); });
  };
  EXPECT_EQ(made({.width = 8, .heads = 3}), "heads: expected a divisor of width 8, got 3");
  EXPECT_EQ(made({.width = 8, .heads = 0}), "heads: expected a divisor of width 8, got 0");
  EXPECT_EQ(made({.width = 8, .heads = 4, .kv_heads = 3}),
            "kv_heads: expected a divisor of heads 4, got 3");
  EXPECT_EQ(made({.width = 8, .heads = 4, .dropout = 1.0}),
            "dropout: expected a probability in [0, 1), got 1");
  EXPECT_EQ(made({.width = 6, .heads = 2, .rotary = Rotary{}}),
            "rotary: expected an even number of dims to rotate, got 3, all of head_dim");
  EXPECT_EQ(made({.width = 8, .heads = 4, .rotary = Rotary{.dims = 4}}),
            "rotary: expected dims from 0 (all) to head_dim = 2, got 4");
  EXPECT_EQ(model.parameters().size(), 0u);
  MultiHeadAttention layer(model.scope("b"), {.width = 8, .heads = 2});
  const Tensor x(DType::kFloat32, {2, 5, 8}), wide(DType::kFloat32, {2, 5, 9});
  const Tensor rows(DType::kFloat32, {5, 8}), three(DType::kFloat32, {3, 5, 8});
  EXPECT_EQ(message_of([&] { layer.forward(wide); }), "x: expected [..., 8], got [2, 5, 9]");
  EXPECT_EQ(message_of([&] { layer.forward(rows); }),
            "x: expected [batch, length, width], got [5, 8]");
  EXPECT_EQ(message_of([&] { layer.forward(x, three, {}); }),
            "memory: expected [2, kv_len, 8], got [3, 5, 8]");
  const Tensor memory(DType::kFloat32, {2, 4, 8});
  Tensor few(DType::kFloat32, {1, 1, 8});
  layer.forward(x, memory, {});
  EXPECT_EQ(message_of([&] { layer.backward(x); }), "grad_memory: expected a tensor, got none");
  EXPECT_EQ(message_of([&] { layer.backward(x, few.view()); }),
            "grad_memory: expected [2, 4, 8], got [1, 1, 8]");
  layer.forward(x);
  EXPECT_EQ(message_of([&] { layer.backward(x, few.view()); }),
            "grad_memory: expected none after self-attention, got a tensor");
}

/// Returns `count` rows of each item of [batch, length, width], starting at `first`.
Tensor rows_of(const TensorView& x, std::int64_t first, std::int64_t count) {
  Tensor rows(x.dtype(), {x.extent(0), count, x.extent(2)});
  for_each_index(rows.shape(), [&](const Index& at) {
    set_value(rows, at, x.value({at[0], first + at[1], at[2]}));
  });
  return rows;
}

/// The masks whose visibility depends on the position of the query, and others.
std::vector<Mask> memory_masks() {
  return {Mask(), causal(), window(1, 1), prefix(2), key_lengths({4, 7})};
}

TEST(NnMultiHead, LookMatchesForward) {
  const Tensor x = convert(RandomState(2).randn({2, 6, 8}), DType::kFloat32);
  const Tensor memory = convert(RandomState(3).randn({2, 7, 8}), DType::kFloat32);
  for (const bool rotary : {false, true}) {
    Model model(1);
    MultiHeadAttentionOptions options{.width = 8, .heads = 2};
    if (rotary) options.rotary = Rotary{.base = 100.0};
    MultiHeadAttention layer(model.scope(), options);
    KvCache cache = layer.new_cache(2);
    // In two parts: the keys of the second are rotated by their positions in the whole memory.
    layer.keep_memory(rows_of(memory, 0, 3), cache);
    layer.keep_memory(rows_of(memory, 3, 4), cache);
    for (const Mask& mask : memory_masks()) {
      const Tensor whole(TensorView(layer.forward(x, memory, mask)));
      const Tensor weights = layer.weights();
      for (const auto& [first, count] :
           {std::pair<std::int64_t, std::int64_t>(0, 6), {0, 2}, {3, 1}, {2, 4}}) {
        const Tensor y(TensorView(layer.look(rows_of(x, first, count), cache, mask, first)));
        EXPECT_LE(test::max_difference(y, rows_of(whole, first, count)), 100 * 0x1p-24)
            << mask.to_string() << " from " << first;
        const Tensor found = layer.weights();
        ASSERT_EQ(found.shape(), Shape({2, 2, count, 7}));
        const std::int64_t start = first;
        for_each_index(found.shape(), [&](const Index& at) {
          EXPECT_NEAR(found.value(at), weights.value({at[0], at[1], start + at[2], at[3]}),
                      100 * 0x1p-24)
              << mask.to_string() << " from " << start;
        });
      }
    }
  }
}

TEST(NnMultiHead, WithoutItems) {
  Model model;
  MultiHeadAttention layer(model.scope(), {.width = 8, .heads = 2});
  const Tensor x(DType::kFloat32, {0, 5, 8}), memory(DType::kFloat32, {0, 3, 8});
  EXPECT_EQ(layer.forward(x, dense(Tensor(DType::kBool, {5, 5}))).shape(), x.shape());
  EXPECT_EQ(layer.weights().shape(), Shape({0, 2, 5, 5}));
  EXPECT_EQ(layer.backward(x).shape(), x.shape());
  EXPECT_EQ(layer.forward(x, documents(Tensor(DType::kInt64, {5}))).shape(), x.shape());
  EXPECT_EQ(layer.forward(x, memory, dense(Tensor(DType::kBool, {5, 3}))).shape(), x.shape());
  EXPECT_EQ(layer.weights().shape(), Shape({0, 2, 5, 3}));
  Tensor grad_memory(DType::kFloat32, memory.shape());
  EXPECT_EQ(layer.backward(x, grad_memory).shape(), x.shape());
  EXPECT_NE(message_of([&] { layer.forward(x, dense(Tensor(DType::kBool, {5, 4}))); }), "");
}

TransformerOptions small(NormPlace norm, double dropout = 0.2) {
  return {.width = 4,
          .heads = 2,
          .inner = 6,
          .dropout = dropout,
          .activation = Activation::kGelu,
          .norm = norm};
}

TEST(NnTransformer, EncoderLayerGradientsMatchFiniteDifferences) {
  for (const NormPlace norm : {NormPlace::kAfter, NormPlace::kBefore}) {
    Model model(1, DType::kFloat64);
    TransformerEncoderLayer layer(model.scope(), small(norm));
    test::draw_parameters(model);
    model.train(1);
    Tensor x = RandomState(2).randn({2, 5, 4});
    test::expect_gradients(
        {model,
         {&x},
         [&] { return TensorView(layer.forward(x, key_lengths(kLengths))); },
         [&](const TensorView& grad) { return std::vector<TensorView>{layer.backward(grad)}; }});
  }
}

TEST(NnTransformer, GradientsMatchFiniteDifferences) {
  for (const NormPlace norm : {NormPlace::kAfter, NormPlace::kBefore}) {
    Model model(1, DType::kFloat64);
    Transformer layer(model.scope(), 2, 2, small(norm));
    test::draw_parameters(model);
    model.train(1);
    Tensor source = RandomState(2).randn({2, 5, 4}), target = RandomState(3).randn({2, 3, 4});
    test::expect_gradients({model,
                            {&source, &target},
                            [&] { return TensorView(layer.forward(source, target, kLengths)); },
                            [&](const TensorView& grad) {
                              const Transformer::Gradients found = layer.backward(grad);
                              return std::vector<TensorView>{found.source, found.target};
                            }});
  }
}

TEST(NnTransformer, ParameterNamesMatchPyTorch) {
  Model model;
  Transformer layer(model.scope("transformer"), 1, 1, small(NormPlace::kAfter));
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) names.push_back(parameter.name);
  std::vector<std::string> expected;
  const auto expect = [&](const std::string& prefix, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      for (const char* const kind : {"weight", "bias"}) {
        expected.push_back("transformer." + prefix + part + kind);
      }
    }
  };
  const std::vector<std::string> of_attention = {"in_proj_", "out_proj."};
  const std::vector<std::string> of_feed_forward = {"linear1.", "linear2."};
  expect("encoder.layers.0.self_attn.", of_attention);
  expect("encoder.layers.0.", of_feed_forward);
  expect("encoder.layers.0.", {"norm1.", "norm2."});
  expect("encoder.norm.", {""});
  expect("decoder.layers.0.self_attn.", of_attention);
  expect("decoder.layers.0.multihead_attn.", of_attention);
  expect("decoder.layers.0.", of_feed_forward);
  expect("decoder.layers.0.", {"norm1.", "norm2.", "norm3."});
  expect("decoder.norm.", {""});
  EXPECT_EQ(names, expected);
}

/// Runs forward and backward once and returns the result and all gradients.
std::vector<Tensor> step(int threads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  Model model(1);
  Transformer layer(model.scope(), 1, 1, {.width = 32, .heads = 4, .inner = 64, .dropout = 0.1});
  model.train(5);
  const Tensor source = convert(RandomState(2).randn({8, 40, 32}), DType::kFloat32);
  const Tensor target = convert(RandomState(3).randn({8, 30, 32}), DType::kFloat32);
  std::vector<Tensor> results;
  results.emplace_back(TensorView(layer.forward(source, target)));
  const Tensor grad = convert(RandomState(4).randn({8, 30, 32}), DType::kFloat32);
  const Transformer::Gradients found = layer.backward(grad);
  results.emplace_back(TensorView(found.source));
  results.emplace_back(TensorView(found.target));
  for (const Parameter& parameter : model.parameters()) results.push_back(parameter.gradient);
  omp_set_num_threads(before);
  return results;
}

TEST(NnTransformer, SameBitsOnEveryRun) {
  for (const int threads : {1, 2}) {
    const std::vector<Tensor> once = step(threads), again = step(threads);
    ASSERT_EQ(once.size(), again.size());
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(test::max_difference(once[i], again[i]), 0.0) << i;
    }
  }
}

TEST(NnTransformer, LaterTokensDoNotAffectEarlierOnes) {
  Model model(1, DType::kFloat64);
  Transformer layer(model.scope(), 1, 2, small(NormPlace::kAfter, 0.0));
  const Tensor source = RandomState(2).randn({1, 4, 4});
  Tensor target = RandomState(3).randn({1, 6, 4});
  const Tensor before(TensorView(layer.forward(source, target)));
  for (std::int64_t c = 0; c < 4; ++c) target.at<double>({0, 4, c}) += 1.0;
  const Tensor after(TensorView(layer.forward(source, target)));
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(test::max_difference(before.view()[0][i], after.view()[0][i]) == 0.0, i < 4) << i;
  }
}

TEST(NnTransformer, PaddingIsIgnored) {
  Model model(1, DType::kFloat64);
  Transformer layer(model.scope(), 2, 1, small(NormPlace::kBefore, 0.0));
  Tensor source = RandomState(2).randn({2, 5, 4});
  const Tensor target = RandomState(3).randn({2, 3, 4});
  const Tensor before(TensorView(layer.forward(source, target, kLengths)));
  for (std::int64_t c = 0; c < 4; ++c) source.at<double>({1, 3, c}) = 1e6;
  EXPECT_EQ(test::max_difference(layer.forward(source, target, kLengths), before), 0.0);
}

/// Decoding token by token matches forward, up to float32 rounding in a different summation order.
TEST(NnTransformerDecoding, MatchesForward) {
  for (const NormPlace norm : {NormPlace::kAfter, NormPlace::kBefore}) {
    for (const bool rotary : {false, true}) {
      Model model(1);
      TransformerOptions options = small(norm, 0.1);
      options.width = 8;
      options.kv_heads = 1;
      if (rotary) options.rotary = Rotary{};
      Transformer layer(model.scope(), 1, 2, options);
      const Tensor source = convert(RandomState(2).randn({2, 5, 8}), DType::kFloat32);
      const Tensor target = convert(RandomState(3).randn({2, 6, 8}), DType::kFloat32);
      const Tensor memory(TensorView(layer.encode(source, kLengths)));
      const Tensor whole(TensorView(layer.decode(target, memory, kLengths)));
      Tensor weights[2];
      for (int i = 0; i < 2; ++i) {
        weights[i] =
            layer.decoder_layers()[static_cast<std::size_t>(i)].cross_attention().weights();
      }
      TransformerDecoding decoding(layer, memory, 2, kLengths);
      for (std::int64_t t = 0; t < 6; ++t) {
        Tensor token(DType::kFloat32, {2, 1, 8});
        for_each_index(token.shape(), [&](const Index& at) {
          set_value(token, at, target.value({at[0], t, at[2]}));
        });
        const MutableTensorView y = decoding.step(token);
        for_each_index(y.shape(), [&](const Index& at) {
          EXPECT_NEAR(y.value(at), whole.value({at[0], t, at[2]}), 100 * 0x1p-24);
        });
        const Tensor mean = decoding.weights();
        for_each_index(mean.shape(), [&](const Index& at) {
          double expected = 0.0;
          for (std::int64_t head = 0; head < 2; ++head) {
            for (const Tensor& of : weights) expected += of.value({at[0], head, t, at[1]}) / 4;
          }
          EXPECT_NEAR(mean.value(at), expected, 100 * 0x1p-24);
        });
      }
      EXPECT_EQ(decoding.length(), 6);
    }
  }
}

TEST(NnTransformer, DecoderLayerStepsMatchForward) {
  Model model(1);
  TransformerDecoderLayer layer(model.scope(), {.width = 8, .heads = 2, .inner = 4});
  const Tensor x = convert(RandomState(2).randn({2, 6, 8}), DType::kFloat32);
  const Tensor memory = convert(RandomState(3).randn({2, 7, 8}), DType::kFloat32);
  for (const Mask& mask : memory_masks()) {
    const Tensor whole(TensorView(layer.forward(x, memory, causal(), mask)));
    TransformerDecoderLayer::Caches caches = layer.begin(memory, 2);
    for (const auto& [first, count] :
         {std::pair<std::int64_t, std::int64_t>(0, 1), {1, 3}, {4, 1}, {5, 1}}) {
      const Tensor y(TensorView(layer.step(rows_of(x, first, count), caches, mask)));
      EXPECT_LE(test::max_difference(y, rows_of(whole, first, count)), 100 * 0x1p-24)
          << mask.to_string() << " from " << first;
    }
  }
}

TEST(NnTransformerDecoding, ContinuesWithoutSequences) {
  Model model(1);
  Transformer layer(model.scope(), 1, 1, small(NormPlace::kAfter, 0.0));
  const Tensor memory(
      TensorView(layer.encode(convert(RandomState(2).randn({1, 5, 4}), DType::kFloat32))));
  TransformerDecoding beams(layer, memory, 3);
  beams.step(Tensor(DType::kFloat32, {3, 1, 4}));
  beams.reorder({});
  EXPECT_EQ(beams.step(Tensor(DType::kFloat32, {0, 1, 4})).shape(), Shape({0, 1, 4}));
  EXPECT_EQ(beams.weights().shape(), Shape({0, 5}));
  EXPECT_EQ(beams.length(), 2);
}

TEST(NnTransformerDecoding, RefusesDropout) {
  Model model(1);
  Transformer layer(model.scope(), 1, 1, small(NormPlace::kAfter, 0.5));
  const Tensor memory(
      TensorView(layer.encode(convert(RandomState(2).randn({1, 5, 4}), DType::kFloat32))));
  TransformerDecoding decoding(layer, memory, 1);
  const Tensor x(DType::kFloat32, {1, 1, 4});
  model.train(1);
  EXPECT_EQ(message_of([&] { decoding.step(x); }),
            "model: expected evaluation mode for decoding, which has no dropout, got training "
            "mode");
  EXPECT_EQ(decoding.length(), 0);
  model.evaluate();
  EXPECT_EQ(decoding.step(x).shape(), x.shape());
}

TEST(NnTransformerDecoding, ReorderedBeamsContinue) {
  Model model(1);
  Transformer layer(model.scope(), 1, 1, small(NormPlace::kAfter, 0.0));
  const Tensor memory(
      TensorView(layer.encode(convert(RandomState(2).randn({1, 5, 4}), DType::kFloat32))));
  const Tensor tokens = convert(RandomState(3).randn({4, 3, 1, 4}), DType::kFloat32);
  TransformerDecoding beams(layer, memory, 3), alone(layer, memory, 1);
  beams.step(tokens.view()[0]);
  beams.reorder(std::vector<std::int64_t>{2, 2});
  const Tensor second(TensorView(beams.step(Tensor(DType::kFloat32, {2, 1, 4}))));
  const auto one = [&](std::int64_t step, std::int64_t beam) {
    const TensorView row = tokens.view()[step][beam];
    return Tensor(row).reshaped({1, 1, 4});
  };
  alone.step(one(0, 2));
  const Tensor expected(TensorView(alone.step(Tensor(DType::kFloat32, {1, 1, 4}))));
  for (std::int64_t beam = 0; beam < 2; ++beam) {
    EXPECT_LE(test::max_difference(second.view()[beam], expected.view()[0]), 100 * 0x1p-24);
  }
  EXPECT_EQ(message_of([&] { beams.reorder(std::vector<std::int64_t>{2}); }),
            "rows: expected 0 to 1, got 2");
  EXPECT_EQ(message_of([&] {
              TransformerDecoding wrong(layer, Tensor(DType::kFloat32, {2, 5, 4}), 3);
            }),
            "memory: expected [3 or 1, kv_len, width], got [2, 5, 4]");
}

}  // namespace
}  // namespace fovea::nn
