// SPDX-License-Identifier: Apache-2.0
//
// Gated recurrent units: PyTorch's values, items of different lengths, gradients.

#include "fovea/nn/gru.h"

#include <algorithm>
#include <cmath>
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

struct GruCase {
  std::string name;
  bool bidirectional;
  std::int64_t batch, length;
  Lengths lengths;
};

const GruCase kGruCases[] = {
    {"all lengths alike", false, 2, 3, {}},
    {"uneven", false, 3, 4, {2, 4, 1}},
    {"both directions", true, 2, 3, {}},
    {"both, uneven, one empty", true, 4, 3, {1, 3, 0, 2}},
    {"one step", true, 2, 1, {}},
    {"one item", true, 1, 4, {3}},
    {"no step", true, 2, 0, {}},
    {"no item", true, 0, 3, {}},
};

TEST(NnGru, GradientsMatchFiniteDifferences) {
  constexpr std::int64_t kIn = 2, kHidden = 3;
  for (const GruCase& c : kGruCases) {
    SCOPED_TRACE(c.name);
    const std::int64_t directions = c.bidirectional ? 2 : 1;
    // Gradients of the outputs (bit 0), of the final state (bit 1), and of both.
    for (const int parts : {1, 2, 3}) {
      Model model(1, DType::kFloat64);
      Gru layer(model.scope(), kIn, kHidden, c.bidirectional);
      test::draw_parameters(model);
      Tensor x = RandomState(2).randn({c.batch, c.length, kIn});
      Tensor initial = RandomState(3).randn({directions, c.batch, kHidden});
      const std::int64_t of_y = c.batch * c.length * directions * kHidden;
      // Both results in one vector, so that there is one gradient to pass back.
      const auto joined = [&](const TensorView& y, const TensorView& final_hidden) {
        std::vector<double> all;
        for (const TensorView& from : {y, final_hidden}) {
          for_each_index(from.shape(), [&](const Index& at) { all.push_back(from.value(at)); });
        }
        return Tensor::from({static_cast<std::int64_t>(all.size())}, all);
      };
      Tensor result;
      test::expect_gradients(
          {model,
           {&x, &initial},
           [&] {
             const TensorView y = layer.forward(x, c.lengths, initial);
             const TensorView none(static_cast<const double*>(nullptr), {0});
             result =
                 joined(parts & 1 ? y : none, parts & 2 ? TensorView(layer.final_hidden()) : none);
             return TensorView(result);
           },
           [&](const TensorView& grad) {
             const auto* const numbers = static_cast<const double*>(grad.data());
             const TensorView grad_y(numbers, {c.batch, c.length, directions * kHidden});
             const TensorView grad_final(numbers + (parts & 1 ? of_y : 0),
                                         {directions, c.batch, kHidden});
             const Gru::Gradients g = layer.backward(parts & 1 ? grad_y : TensorView(),
                                                     parts & 2 ? grad_final : TensorView());
             return std::vector<TensorView>{g.x, g.initial};
           }});
    }
  }
}

// PyTorch 2 in float64:
//   gru = torch.nn.GRU(2, 2, batch_first=True, bidirectional=True)
//   r = numpy.random.RandomState(99)
//   for p in gru.parameters(): p.data = torch.tensor(0.5 * r.randn(*p.shape))
//   x, h0 = draw(1, 2, 3, 2), draw(2, 2, 2, 2)  # RandomState(first).randn(*others)
//   y, h = gru(pack_padded_sequence(x, [3, 2], batch_first=True), h0)
//   y, _ = pad_packed_sequence(y, batch_first=True)
//   ((y * draw(3, 2, 3, 4)).sum() + (h * draw(4, 2, 2, 2)).sum()).backward()
TEST(NnGru, MatchesPyTorch) {
  Model model(1, DType::kFloat64);
  Gru layer(model.scope(), 2, 2, true);
  test::draw_parameters(model, 99);
  const Tensor x = RandomState(1).randn({2, 3, 2}), initial = RandomState(2).randn({2, 2, 2});
  const Lengths lengths{3, 2};
  test::expect_numbers(layer.forward(x, lengths, initial), {0.0064737821122538,
                                                            0.0582493479420012,
                                                            -0.818120940518794,
                                                            -0.334448438982733,
                                                            0.28700093614404,
                                                            0.139830129885111,
                                                            -0.786341792591569,
                                                            -0.374902195082101,
                                                            0.506392293206963,
                                                            -0.173524313882775,
                                                            -1.32221767285497,
                                                            -0.754332567033295,
                                                            -0.0694450895740274,
                                                            1.38182875355214,
                                                            -0.62339278389213,
                                                            -0.801115895495117,
                                                            0.168137581553533,
                                                            1.02315733651331,
                                                            -0.436870822157835,
                                                            -0.86553333757113,
                                                            0.0,
                                                            0.0,
                                                            0.0,
                                                            0.0});
  test::expect_numbers(
      layer.final_hidden(),
      {0.506392293206963, -0.173524313882775, 0.168137581553533, 1.02315733651331,
       -0.818120940518794, -0.334448438982733, -0.62339278389213, -0.801115895495117});
  const Gru::Gradients g =
      layer.backward(RandomState(3).randn({2, 3, 4}), RandomState(4).randn({2, 2, 2}));
  test::expect_numbers(
      g.x, {0.223954301974468, -0.32949740362215, 1.10309588354391, -0.254297063625849,
            0.577747824286285, -0.214045279355044, 0.0225167385455911, 0.121994509276675,
            0.378460220636936, 0.288921115722002, 0.0, 0.0});
  test::expect_numbers(
      g.initial, {0.767960965978536, 0.31739934552895, -0.0589025821551085, 0.927297052310424,
                  -0.758306215753047, -2.40398558905573, 0.150383669601891, -0.731750622747283});
  test::expect_numbers(
      model.parameters().find("weight_hh_l0_reverse")->gradient,
      {-0.208408913614422, -0.0236805505633773, -0.40587616234644, -0.256426154788432,
       -0.610708367501399, -0.496174882865632, -1.57661280506115, -1.26507217584442,
       0.152136916627649, -0.0138825154966718, 1.12287848556857, 0.792381892760538});
}

TEST(NnGru, ItemsAreIndependent) {
  // Each item of a batch of different lengths is bitwise equal to a separate call for this item,
  // cut to its length.
  for (const bool bidirectional : {false, true}) {
    const std::int64_t directions = bidirectional ? 2 : 1;
    const Lengths lengths{4, 1, 0, 5};
    Model model(1, DType::kFloat64);
    Gru layer(model.scope(), 3, 2, bidirectional), alone(model.scope("alone"), 3, 2, bidirectional);
    for (Parameter& parameter : model.parameters()) {
      if (Parameter* const twin = model.parameters().find("alone." + parameter.name)) {
        twin->value = parameter.value;
      }
    }
    const Tensor x = RandomState(2).randn({4, 5, 3});
    const TensorView y = layer.forward(x, lengths);
    for (std::int64_t item = 0; item < 4; ++item) {
      const std::int64_t length = lengths[static_cast<std::size_t>(item)];
      const Tensor cut(
          TensorView(x.view()[item].data(), DType::kFloat64, {1, length, 3}, {0, 3, 1}));
      const Tensor expected(alone.forward(cut));
      for_each_index({5, directions * 2}, [&](const Index& at) {
        EXPECT_EQ(y.value({item, at[0], at[1]}),
                  at[0] < length ? expected.value({0, at[0], at[1]}) : 0.0);
      });
      for_each_index({directions, 2}, [&](const Index& at) {
        EXPECT_EQ(layer.final_hidden().value({at[0], item, at[1]}),
                  alone.final_hidden().value({at[0], 0, at[1]}));
      });
    }
  }
}

TEST(NnGru, StartsFromTheInitialState) {
  Model model(1, DType::kFloat64);
  Gru layer(model.scope(), 2, 3, true);
  const Tensor x = RandomState(2).randn({2, 4, 2}), initial = RandomState(3).randn({2, 2, 3});
  layer.forward(x, Lengths{0, 0}, initial);
  EXPECT_EQ(test::max_difference(layer.final_hidden(), initial), 0.0);
  const Tensor from_zeros(layer.forward(x, {}, Tensor(DType::kFloat64, {2, 2, 3})));
  EXPECT_EQ(test::max_difference(layer.forward(x), from_zeros), 0.0);
  // In the forward direction, the first half followed by the second half, started from the first
  // half's final state, equals the whole.
  Model one(1, DType::kFloat64);
  Gru forward(one.scope(), 2, 3);
  const Tensor item = RandomState(4).randn({1, 4, 2});
  const Tensor whole(forward.forward(item));
  const auto half = [&](std::int64_t begin) {
    return Tensor(TensorView(&item.at<double>({0, begin, 0}), {1, 2, 2}));
  };
  const Tensor first_half = half(0), second_half = half(2);
  forward.forward(first_half);
  const Tensor middle(forward.final_hidden());
  const TensorView y = forward.forward(second_half, {}, middle);
  for_each_index({2, 3}, [&](const Index& at) {
    EXPECT_EQ(y.value({0, at[0], at[1]}), whole.value({0, 2 + at[0], at[1]}));
  });
}

TEST(NnGru, PaddingIsIgnored) {
  Model model(1);
  Gru layer(model.scope(), 2, 3, true);
  const Lengths lengths{1, 3};
  Tensor x = convert(RandomState(2).randn({2, 3, 2}), DType::kFloat32);
  Tensor grad = convert(RandomState(3).randn({2, 3, 6}), DType::kFloat32);
  const Tensor y(layer.forward(x, lengths));
  const Tensor grad_x(layer.backward(grad).x);
  set_value(x, {0, 1, 0}, 1e3);
  set_value(x, {0, 2, 1}, -7.0);
  set_value(grad, {0, 1, 5}, 1e5);
  EXPECT_TRUE(test::same_bits(layer.forward(x, lengths), y));
  const Gru::Gradients again = layer.backward(grad);
  EXPECT_TRUE(test::same_bits(again.x, grad_x));
  for (const std::int64_t t : {1, 2}) EXPECT_EQ(again.x.value({0, t, 0}), 0.0);
}

TEST(NnGru, Float32AgreesWithFloat64) {
  for (const std::int64_t hidden : {1, 5, 64, 130}) {
    const std::int64_t in = 33, batch = 7, length = 12;
    const Lengths lengths{12, 1, 7, 0, 12, 3, 11};
    Model model(5), exact(5, DType::kFloat64);
    Gru layer(model.scope(), in, hidden, true), exact_layer(exact.scope(), in, hidden, true);
    test::copy_parameters(model, exact);
    const auto draw = [](std::uint64_t seed, const Shape& shape) {
      return convert(RandomState(seed).randn(shape), DType::kFloat32);
    };
    const Tensor x = draw(6, {batch, length, in}), initial = draw(7, {2, batch, hidden}),
                 grad = draw(8, {batch, length, 2 * hidden}),
                 grad_final = draw(9, {2, batch, hidden});
    const auto wide = [](const Tensor& t) { return convert(t, DType::kFloat64); };
    const Tensor wide_x = wide(x), wide_initial = wide(initial);
    const TensorView y = layer.forward(x, lengths, initial);
    const TensorView exact_y = exact_layer.forward(wide_x, lengths, wide_initial);
    const Gru::Gradients g = layer.backward(grad, grad_final),
                         exact_g = exact_layer.backward(wide(grad), wide(grad_final));
    // Each step adds `in + hidden` products, and errors accumulate over the steps.
    const double chain = static_cast<double>(in + 3 * hidden + length);
    EXPECT_TRUE(test::within_roundings(y, exact_y, chain));
    EXPECT_TRUE(test::within_roundings(layer.final_hidden(), exact_layer.final_hidden(), chain));
    EXPECT_TRUE(test::within_roundings(g.x, exact_g.x, chain));
    EXPECT_TRUE(test::within_roundings(g.initial, exact_g.initial, chain));
    for (const Parameter& parameter : model.parameters()) {
      EXPECT_TRUE(test::within_roundings(parameter.gradient,
                                         exact.parameters().find(parameter.name)->gradient,
                                         chain + static_cast<double>(batch * length)))
          << parameter.name;
    }
  }
}

TEST(NnGru, SameBitsForAnyThreadCount) {
  const auto run = [](int threads) {
    const test::Threads limit(threads);
    Model model(3);
    Gru layer(model.scope(), 40, 70, true);
    const Tensor x = convert(RandomState(2).randn({50, 9, 40}), DType::kFloat32);
    const Tensor grad = convert(RandomState(3).randn({50, 9, 140}), DType::kFloat32);
    std::vector<Tensor> all;
    all.emplace_back(layer.forward(x));
    all.emplace_back(layer.backward(grad).x);
    for (const Parameter& parameter : model.parameters()) all.push_back(parameter.gradient);
    return all;
  };
  const std::vector<Tensor> one = run(1), two = run(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(test::same_bits(one[i], two[i])) << i;
}

TEST(NnGru, AllocatesOnce) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations are not counted here";
  const test::Threads limit(1);
  Model model(3, DType::kFloat64);  // float32 products use oneDNN, which allocates
  Gru layer(model.scope(), 4, 5, true);
  const Tensor x = RandomState(2).randn({3, 6, 4}), shorter = RandomState(2).randn({3, 5, 4});
  const Tensor grad = RandomState(3).randn({3, 6, 10});
  const Tensor grad_of_shorter = RandomState(3).randn({3, 5, 10});
  const Lengths lengths{3, 5, 1};
  const auto step = [&] {
    layer.forward(x, lengths);
    layer.backward(grad);
    layer.forward(shorter);
    layer.backward(grad_of_shorter);
  };
  step();
  const std::int64_t before = test::allocations();
  step();
  EXPECT_EQ(test::allocations(), before);
}

TEST(NnGru, InitializesLikePyTorch) {
  Model model;
  Gru layer(model.scope(), 30, 16);
  for (const Parameter& parameter : model.parameters()) {
    double largest = 0.0;
    for (const float x : parameter.value.span<float>()) {
      largest = std::max(largest, std::abs(double{x}));
    }
    EXPECT_LE(largest, 1 / std::sqrt(16.0)) << parameter.name;
    EXPECT_GT(largest, 0.9 / std::sqrt(16.0)) << parameter.name;
  }
}

TEST(NnGru, ParameterNamesMatchPyTorch) {
  Model model;
  Gru layer(model.scope("encoder"), 2, 3, true);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) {
    names.push_back(parameter.name + " " + to_string(parameter.value.shape()));
  }
  EXPECT_THAT(names,
              testing::ElementsAre(
                  "encoder.weight_ih_l0 [9, 2]", "encoder.weight_hh_l0 [9, 3]",
                  "encoder.bias_ih_l0 [9]", "encoder.bias_hh_l0 [9]",
                  "encoder.weight_ih_l0_reverse [9, 2]", "encoder.weight_hh_l0_reverse [9, 3]",
                  "encoder.bias_ih_l0_reverse [9]", "encoder.bias_hh_l0_reverse [9]"));
}

TEST(NnGru, InvalidArguments) {
  Model model;
  Gru layer(model.scope(), 2, 3, true);
  const Tensor x(DType::kFloat32, {2, 4, 2});
  const auto forward = [&](const TensorView& input, const Lengths& lengths = {},
                           const TensorView& initial = {}) {
    return test::message_of([&] { layer.forward(input, lengths, initial); });
  };
  EXPECT_EQ(forward(Tensor(DType::kFloat32, {2, 4, 5})), "x: expected [..., 2], got [2, 4, 5]");
  EXPECT_EQ(forward(Tensor(DType::kFloat32, {4, 2})), "x: expected [batch, length, 2], got [4, 2]");
  EXPECT_EQ(forward(x, {1}), "lengths: expected none or one for each of 2 items, got 1");
  EXPECT_EQ(forward(x, {1, 5}), "lengths: expected lengths from 0 to 4, got 5");
  EXPECT_EQ(forward(x, {1, -1}), "lengths: expected lengths from 0 to 4, got -1");
  EXPECT_EQ(forward(x, {}, Tensor(DType::kFloat32, {1, 2, 3})),
            "initial: expected [2, 2, 3], got [1, 2, 3]");
  layer.forward(x);
  EXPECT_EQ(test::message_of([&] {
              layer.backward(Tensor(DType::kFloat32, {2, 4, 3}));
            }),
            "grad_y: expected [2, 4, 6], got [2, 4, 3]");
  EXPECT_EQ(test::message_of([&] {
              layer.backward({}, Tensor(DType::kFloat32, {2, 3}));
            }),
            "grad_final: expected [2, 2, 3], got [2, 3]");
}

}  // namespace
}  // namespace fovea::nn
