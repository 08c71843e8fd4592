// SPDX-License-Identifier: Apache-2.0
//
// The basic layers: linear maps, norms, embeddings, positions, dropout, feed-forward.

#include <cstdint>
#include <optional>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/embedding.h"
#include "fovea/nn/feed_forward.h"
#include "fovea/nn/layer_norm.h"
#include "fovea/nn/linear.h"

#include "arrays/calls.h"
#include "nn/layer.h"
#include "nn/words.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

constexpr const char* kBackwardDoc =
    "grad_y has the shape of forward's result; returns the gradient of x.";

void add_linear(nb::module_& module) {
  auto layer = add_layer(
      module, "Linear",
      R"(y = x W^T + b, like torch.nn.Linear: weight [out_features, in_features] and bias [out_features],
initialised uniformly within +-1 / sqrt(in_features).)",
      +[](const nn::Scope& scope, std::int64_t in, std::int64_t out, bool bias) {
        return nn::Linear(scope, in, out, bias);
      },
      "in_features"_a, "out_features"_a, "bias"_a = true, nb::kw_only());
  add_steps<nn::Linear>(layer, "x [..., in_features]; returns [..., out_features].", kBackwardDoc);
}

void add_layer_norm(nb::module_& module) {
  auto layer = add_layer(
      module, "LayerNorm",
      R"(Normalises each row to mean 0 and variance 1 (Ba et al. 2016), then multiplies by weight
and adds bias, like torch.nn.LayerNorm: weight [width], initially ones; bias [width], initially
zeros.)",
      +[](const nn::Scope& scope, std::int64_t width, double epsilon) {
        return nn::LayerNorm(scope, width, epsilon);
      },
      "width"_a, "epsilon"_a = 1e-5, nb::kw_only());
  add_steps<nn::LayerNorm>(layer, "x [..., width]; returns the same shape.", kBackwardDoc);
}

void add_embedding(nb::module_& module) {
  add_layer(
      module, "Embedding",
      R"(Looks up rows of a table by index, like torch.nn.Embedding: weight [count, width], initialised
standard normal. The row `padding`, if set, is zeros and gets no gradient.)",
      +[](const nn::Scope& scope, std::int64_t count, std::int64_t width,
          std::optional<std::int64_t> padding) {
        return nn::Embedding(scope, count, width, padding);
      },
      "count"_a, "width"_a, "padding"_a = nb::none(), nb::kw_only())
      .def(
          "forward",
          [](LayerOf<nn::Embedding>& self, const GivenIntegers& tokens) {
            const Tensor numbers = int64_tensor(tokens.object.ptr(), "tokens");
            return self.forward({}, [&](const auto&) { return self.layer.forward(numbers); });
          },
          "tokens"_a, "tokens, integers [...], each in 0 .. count - 1; returns [..., width].")
      .def(
          "backward",
          [](LayerOf<nn::Embedding>& self, const GivenArray& grad_y) {
            self.backward(grad_y, [&](const auto& grad) { self.layer.backward(grad); });
          },
          "grad_y"_a, "grad_y [..., width]. Tokens have no gradient.");
}

void add_positions(nb::module_& module) {
  add_layer(
      module, "Positions",
      R"(Adds a position vector to each row.

kind  "sinusoidal": a fixed table; "learned": weight [max_length, width], initialised normal with
      standard deviation 0.02; "none": adds nothing)",
      +[](const nn::Scope& scope, const PositionWord& kind, std::int64_t max_length,
          std::int64_t width) {
        return nn::Positions(scope, position_kind_of(kind), max_length, width);
      },
      "kind"_a, "max_length"_a, "width"_a, nb::kw_only())
      .def(
          "forward",
          [](LayerOf<nn::Positions>& self, const GivenArray& x, std::int64_t first) {
            return self.forward({{x, "x"}}, [&](const auto& in) {
              self.layer.forward(in[0], first);
              return in[0];
            });
          },
          "x"_a, "first"_a = 0,
          "x [batch, length, width], with rows at positions `first`, `first` + 1, ...; returns "
          "the\n"
          "same shape.")
      .def(
          "backward",
          [](LayerOf<nn::Positions>& self, const GivenArray& grad_y) {
            return self.backward(grad_y, [&](const TensorView& grad) {
              self.layer.backward(grad);
              return grad;
            });
          },
          "grad_y"_a, "Returns the gradient of x: a copy of grad_y.");

  module.def(
      "sinusoidal_positions",
      [](std::int64_t length, std::int64_t width, const DTypeWord& dtype) {
        return numpy_array(nn::sinusoidal_positions(length, width, dtype_of(dtype)));
      },
      "length"_a, "width"_a, "dtype"_a = "float32",
      R"(The sinusoidal table of Vaswani et al. 2017, sec. 3.5: [length, width], at position p and pair i
  [p, 2 i] = sin(p / 10000^(2 i / width)),  [p, 2 i + 1] = cos(p / 10000^(2 i / width)).)");
}

void add_dropout(nb::module_& module) {
  add_layer(
      module, "Dropout",
      R"(While the model is training, drops each element with probability p, rounded to 16 bits, and divides
the kept elements by 1 - p (Srivastava et al. 2014). The model's seed and step determine the kept
elements, so a step can be repeated. (fovea.Dropout is dropout of attention weights.))",
      +[](const nn::Scope& scope, double p) { return nn::DropoutLayer(scope, p); }, "p"_a,
      nb::kw_only())
      .def(
          "forward",
          [](LayerOf<nn::DropoutLayer>& self, const GivenArray& x) {
            return self.forward({{x, "x"}}, [&](const auto& in) {
              self.layer.forward(in[0]);
              return in[0];
            });
          },
          "x"_a, "x [...]; returns the same shape.")
      .def(
          "backward",
          [](LayerOf<nn::DropoutLayer>& self, const GivenArray& grad_y) {
            return self.backward(grad_y,
                                 [&](const auto& grad) { return self.layer.backward(grad); });
          },
          "grad_y"_a, kBackwardDoc);
}

void add_feed_forward(nb::module_& module) {
  auto layer = add_layer(
      module, "FeedForward",
      R"(linear2(dropout(activation(linear1(x)))), the feed-forward block of Vaswani et al. 2017, sec. 3.3.

inner       hidden width: linear1 is [inner, width], linear2 [width, inner]
activation  "relu"; or "gelu", the exact one with the error function)",
      +[](const nn::Scope& scope, std::int64_t width, std::int64_t inner,
          const ActivationWord& activation, double dropout) {
        return nn::FeedForward(scope, width, inner, activation_of(activation), dropout);
      },
      "width"_a, "inner"_a, "activation"_a = "relu", "dropout"_a = 0.0, nb::kw_only());
  add_steps<nn::FeedForward>(layer, "x [..., width]; returns the same shape.", kBackwardDoc);
}

}  // namespace

void add_layers(nb::module_& module) {
  add_linear(module);
  add_layer_norm(module);
  add_embedding(module);
  add_positions(module);
  add_dropout(module);
  add_feed_forward(module);
}

}  // namespace fovea::python
