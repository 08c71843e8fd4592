// SPDX-License-Identifier: Apache-2.0
//
// The GRU decoder: PyTorch's values, gradients through all steps, and stepwise calls.

#include "fovea/nn/gru_decoder.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/random.h"

#include "support/allocations.h"
#include "support/layer_check.h"
#include "support/message_of.h"
#include "support/random_problem.h"
#include "support/same_layer.h"
#include "support/threads.h"

namespace fovea::nn {
namespace {

using Lengths = std::vector<std::int64_t>;

constexpr GruDecoder::Dims kDims{.embed_dim = 2, .hidden = 3, .encoder_dim = 4, .attention_dim = 5};

struct DecoderCase {
  std::string name;
  std::int64_t batch, length, kv_len;
  Lengths lengths;
};

const DecoderCase kDecoderCases[] = {
    {"all lengths alike", 2, 3, 4, {}}, {"uneven, one empty", 3, 3, 4, {2, 0, 4}},
    {"one step", 2, 1, 3, {3, 1}},      {"one item, one key", 1, 4, 1, {}},
    {"no step", 2, 0, 3, {}},           {"no key", 2, 2, 0, {}},
    {"no item", 0, 2, 3, {}},
};

struct DecoderInputs {
  DecoderInputs(const DecoderCase& c, const GruDecoder::Dims& dims)
      : embeddings(RandomState(2).randn({c.batch, c.length, dims.embed_dim})),
        encoder(RandomState(3).randn({c.batch, c.kv_len, dims.encoder_dim})),
        initial(RandomState(4).randn({c.batch, dims.hidden})) {}

  void convert_to(DType dtype) {
    for (Tensor* tensor : {&embeddings, &encoder, &initial}) *tensor = convert(*tensor, dtype);
  }

  Tensor embeddings, encoder, initial;
};

TEST(NnGruDecoder, GradientsMatchFiniteDifferences) {
  for (const DecoderCase& c : kDecoderCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    GruDecoder layer(model.scope(), kDims);
    test::draw_parameters(model);
    DecoderInputs in(c, kDims);
    test::expect_gradients({model,
                            {&in.embeddings, &in.encoder, &in.initial},
                            [&] {
                              return TensorView(
                                  layer.forward(in.embeddings, in.encoder, in.initial, c.lengths));
                            },
                            [&](const TensorView& grad) {
                              const GruDecoder::Gradients g = layer.backward(grad);
                              return std::vector<TensorView>{g.embeddings, g.encoder, g.initial};
                            }});
  }
}

// PyTorch 2 in float64. W [3, 2], U [3, 2], v [3] and torch.nn.GRUCell(3, 2) are filled in this
// order, as in gru_test.cc:
//   emb, enc, h0 = draw(1, 2, 2, 1), draw(2, 2, 3, 2), draw(3, 2, 2)
//   h, ys = h0, []
//   for t in range(2):
//       s = torch.tanh((h @ W.T)[:, None] + enc @ U.T) @ v
//       s[1, 2] = -torch.inf
//       w = s.softmax(-1)
//       c = (w[:, :, None] * enc).sum(1)
//       h = cell(torch.cat([emb[:, t], c], -1), h)
//       ys.append(torch.cat([h, c, emb[:, t]], -1))
//   y = torch.stack(ys, 1)
//   (y * draw(4, 2, 2, 5)).sum().backward()
TEST(NnGruDecoder, MatchesPyTorch) {
  Model model(1, DType::kFloat64);
  GruDecoder layer(model.scope(),
                   {.embed_dim = 1, .hidden = 2, .encoder_dim = 2, .attention_dim = 3});
  test::draw_parameters(model, 99);
  const Tensor embeddings = RandomState(1).randn({2, 2, 1}),
               encoder = RandomState(2).randn({2, 3, 2}), initial = RandomState(3).randn({2, 2});
  const Lengths lengths{3, 2};
  test::expect_numbers(
      layer.forward(embeddings, encoder, initial, lengths),
      {0.727317596809664,  0.262098065171281,  -1.40557474050151,    0.124320390588695,
       1.62434536366324,   0.120222334481663,  0.232988241697501,    -1.4170912587686,
       0.124259356827791,  -0.611756413650075, -0.00682091215167735, -0.628974594238345,
       -0.262119304346193, -1.08046923754706,  -0.528171752263456,   -0.285234288712401,
       -0.54458419637027,  -0.274509721496611, -1.0777997311836,     -1.07296862215617});
  const std::vector<double> last_weights{0.34322945354461,  0.280580808709104, 0.376189737746286,
                                         0.501938502147642, 0.498061497852358, 0.0};
  for_each_index({2, 3}, [&](const Index& at) {
    EXPECT_NEAR(layer.weights().value({at[0], 1, at[1]}),
                last_weights[static_cast<std::size_t>(at[0] * 3 + at[1])], 1e-14);
  });
  const GruDecoder::Gradients g = layer.backward(RandomState(4).randn({2, 2, 5}));
  test::expect_numbers(
      g.embeddings, {-0.507718060381091, -1.20972026288233, -1.09629637819868, 0.10909236599412});
  test::expect_numbers(
      g.encoder, {-0.00813901366468836, 0.246573009802997, -0.00192946884226218, 0.187847939296374,
                  0.00526997919577247, 0.270187332662522, 0.902703386660784, 0.182686634790781,
                  0.912831260979705, 0.339936692946663, 0.0, 0.0});
  test::expect_numbers(
      g.initial, {-0.302379883296805, 0.795159072966342, 1.0370421269089, 0.0923882780267831});
  test::expect_numbers(model.parameters().find("attention.key_proj.weight")->gradient,
                       {-0.00108125371814076, 0.00485750973877929, 0.12061111399675,
                        0.044740748840302, 0.123572880743538, 0.0652604698352029});
}

TEST(NnGruDecoder, StepwiseCallsMatchForward) {
  for (const DecoderCase& c : kDecoderCases) {
    SCOPED_TRACE(c.name);
    Model model(1, DType::kFloat64);
    GruDecoder layer(model.scope(), kDims);
    const DecoderInputs in(c, kDims);
    const Tensor y(layer.forward(in.embeddings, in.encoder, in.initial, c.lengths));
    const Tensor weights(layer.weights());
    ASSERT_EQ(y.shape(), Shape({c.batch, c.length, layer.y_dim()}));
    ASSERT_EQ(weights.shape(), Shape({c.batch, c.length, c.kv_len}));
    layer.prepare(in.encoder, c.lengths);
    TensorView hidden = in.initial;
    for (std::int64_t t = 0; t < c.length; ++t) {
      Tensor embedding(DType::kFloat64, {c.batch, kDims.embed_dim});
      for_each_index(embedding.shape(), [&](const Index& at) {
        set_value(embedding, at, in.embeddings.value({at[0], t, at[1]}));
      });
      const GruDecoder::Step step = layer.step(embedding, hidden);
      hidden = step.hidden;
      ASSERT_EQ(step.y.shape(), Shape({c.batch, layer.y_dim()}));
      for_each_index(step.y.shape(), [&](const Index& at) {
        EXPECT_EQ(step.y.value(at), y.value({at[0], t, at[1]}));
      });
      for_each_index(step.weights.shape(), [&](const Index& at) {
        EXPECT_EQ(step.weights.value(at), weights.value({at[0], t, at[1]}));
      });
      for_each_index(hidden.shape(), [&](const Index& at) {
        EXPECT_EQ(hidden.value(at), y.value({at[0], t, at[1]}));
      });
    }
  }
}

TEST(NnGruDecoder, OutputConcatenatesItsPartsInOrder) {
  const DecoderCase c{"", 2, 3, 4, {2, 4}};
  Model model(1, DType::kFloat64);
  GruDecoder layer(model.scope(), kDims);
  const DecoderInputs in(c, kDims);
  const TensorView y = layer.forward(in.embeddings, in.encoder, in.initial, c.lengths);
  for_each_index({2, 3}, [&](const Index& at) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < c.kv_len; ++j) sum += layer.weights().value({at[0], at[1], j});
    EXPECT_NEAR(sum, 1.0, 1e-15);
    for (std::int64_t d = 0; d < kDims.encoder_dim; ++d) {
      double context = 0.0;
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        context += layer.weights().value({at[0], at[1], j}) * in.encoder.value({at[0], j, d});
      }
      EXPECT_NEAR(y.value({at[0], at[1], kDims.hidden + d}), context, 1e-14);
    }
    for (std::int64_t d = 0; d < kDims.embed_dim; ++d) {
      EXPECT_EQ(y.value({at[0], at[1], kDims.hidden + kDims.encoder_dim + d}),
                in.embeddings.value({at[0], at[1], d}));
    }
  });
}

TEST(NnGruDecoder, Float32AgreesWithFloat64) {
  constexpr GruDecoder::Dims kLarger{
      .embed_dim = 33, .hidden = 40, .encoder_dim = 70, .attention_dim = 50};
  const DecoderCase c{"", 5, 11, 13, {13, 1, 7, 0, 12}};
  Model model(5), exact(5, DType::kFloat64);
  GruDecoder layer(model.scope(), kLarger), exact_layer(exact.scope(), kLarger);
  test::copy_parameters(model, exact);
  DecoderInputs in(c, kLarger);
  in.convert_to(DType::kFloat32);
  DecoderInputs wide = in;
  wide.convert_to(DType::kFloat64);
  const Tensor grad =
      convert(RandomState(5).randn({c.batch, c.length, layer.y_dim()}), DType::kFloat32);
  const auto chain =
      static_cast<double>(layer.y_dim() + 4 * kLarger.hidden + kLarger.attention_dim + c.length);
  EXPECT_TRUE(test::within_roundings(
      layer.forward(in.embeddings, in.encoder, in.initial, c.lengths),
      exact_layer.forward(wide.embeddings, wide.encoder, wide.initial, c.lengths), chain));
  EXPECT_TRUE(test::within_roundings(layer.weights(), exact_layer.weights(), chain));
  const GruDecoder::Gradients g = layer.backward(grad),
                              exact_g = exact_layer.backward(convert(grad, DType::kFloat64));
  EXPECT_TRUE(test::within_roundings(g.embeddings, exact_g.embeddings, chain));
  EXPECT_TRUE(test::within_roundings(g.encoder, exact_g.encoder, chain));
  EXPECT_TRUE(test::within_roundings(g.initial, exact_g.initial, chain));
  for (const Parameter& parameter : model.parameters()) {
    EXPECT_TRUE(test::within_roundings(parameter.gradient,
                                       exact.parameters().find(parameter.name)->gradient,
                                       chain + static_cast<double>(c.batch * c.length)))
        << parameter.name;
  }
}

TEST(NnGruDecoder, SameBitsForAnyThreadCount) {
  constexpr GruDecoder::Dims kLarger{
      .embed_dim = 33, .hidden = 40, .encoder_dim = 70, .attention_dim = 50};
  const DecoderCase c{"", 40, 7, 13, {}};
  const auto run = [&](int threads) {
    const test::Threads limit(threads);
    Model model(3);
    GruDecoder layer(model.scope(), kLarger);
    DecoderInputs in(c, kLarger);
    in.convert_to(DType::kFloat32);
    std::vector<Tensor> all;
    all.emplace_back(layer.forward(in.embeddings, in.encoder, in.initial));
    const Tensor grad = convert(RandomState(5).randn(all[0].shape()), DType::kFloat32);
    const GruDecoder::Gradients g = layer.backward(grad);
    for (const MutableTensorView& of : {g.embeddings, g.encoder, g.initial}) all.emplace_back(of);
    for (const Parameter& parameter : model.parameters()) all.push_back(parameter.gradient);
    return all;
  };
  const std::vector<Tensor> one = run(1), two = run(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(test::same_bits(one[i], two[i])) << i;
}

TEST(NnGruDecoder, AllocatesOnce) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations are not counted here";
  const test::Threads limit(1);
  Model model(3, DType::kFloat64);  // float32 products use oneDNN, which allocates
  GruDecoder layer(model.scope(), kDims);
  const DecoderCase c{"", 3, 4, 5, {3, 5, 1}};
  const DecoderInputs in(c, kDims);
  const Tensor grad = RandomState(5).randn({3, 4, layer.y_dim()});
  const Tensor embedding = RandomState(6).randn({3, kDims.embed_dim});
  const auto step = [&] {
    layer.forward(in.embeddings, in.encoder, in.initial, c.lengths);
    layer.backward(grad);
    layer.prepare(in.encoder, c.lengths);
    layer.step(embedding, layer.step(embedding, in.initial).hidden);
  };
  step();
  const std::int64_t before = test::allocations();
  step();
  EXPECT_EQ(test::allocations(), before);
}

TEST(NnGruDecoder, NamesItsParameters) {
  Model model;
  GruDecoder layer(model.scope("decoder"), kDims);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) {
    names.push_back(parameter.name + " " + to_string(parameter.value.shape()));
  }
  EXPECT_THAT(names, testing::ElementsAre(
                         "decoder.attention.query_proj.weight [5, 3]",
                         "decoder.attention.key_proj.weight [5, 4]", "decoder.attention.v [5]",
                         "decoder.cell.weight_ih [9, 6]", "decoder.cell.weight_hh [9, 3]",
                         "decoder.cell.bias_ih [9]", "decoder.cell.bias_hh [9]"));
}

TEST(NnGruDecoder, InvalidArguments) {
  Model model;
  GruDecoder layer(model.scope(), kDims);
  const auto zeros = [](const Shape& shape) { return Tensor(DType::kFloat32, shape); };
  const Tensor embeddings = zeros({2, 6, 2}), encoder = zeros({2, 7, 4}), initial = zeros({2, 3});
  const auto forward = [&](const TensorView& x, const TensorView& of, const TensorView& first,
                           const Lengths& lengths = {}) {
    return test::message_of([&] { layer.forward(x, of, first, lengths); });
  };
  EXPECT_EQ(forward(zeros({2, 6, 3}), encoder, initial),
            "embeddings: expected [..., 2], got [2, 6, 3]");
  EXPECT_EQ(forward(zeros({3, 6, 2}), encoder, initial),
            "embeddings: expected [2, length, 2], got [3, 6, 2]");
  EXPECT_EQ(forward(embeddings, zeros({2, 7, 3}), initial),
            "encoder: expected [..., 4], got [2, 7, 3]");
  EXPECT_EQ(forward(embeddings, encoder, zeros({1, 2, 3})),
            "initial: expected [2, 3], got [1, 2, 3]");
  EXPECT_EQ(forward(embeddings, encoder, initial, {7, 8}),
            "lengths: expected lengths from 0 to 7, got 8");
  EXPECT_EQ(forward(embeddings, encoder, initial, {7}),
            "lengths: expected none or one for each of 2 items, got 1");
  layer.forward(embeddings, encoder, initial);
  EXPECT_EQ(test::message_of([&] {
              layer.backward(zeros({2, 6, 8}));
            }),
            "grad_y: expected [2, 6, 9], got [2, 6, 8]");
  EXPECT_EQ(test::message_of([&] {
              layer.step(zeros({1, 2}), initial);
            }),
            "embedding: expected [2, 2], got [1, 2]");
  EXPECT_EQ(test::message_of([&] {
              layer.step(zeros({2, 2}), zeros({2, 4}));
            }),
            "hidden: expected [2, 3], got [2, 4]");
  EXPECT_EQ(test::message_of([&] {
              layer.prepare(zeros({2, 7, 5}));
            }),
            "encoder: expected [..., 4], got [2, 7, 5]");
}

}  // namespace
}  // namespace fovea::nn
