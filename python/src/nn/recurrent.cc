// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers, and the attention layers used with them.

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "fovea/nn/additive_attention.h"
#include "fovea/nn/general_attention.h"
#include "fovea/nn/gru.h"
#include "fovea/nn/gru_decoder.h"

#include "nn/layer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

using ThreeGradients = std::tuple<TensorView, TensorView, TensorView>;

GivenArray array_or_none(const std::optional<GivenArray>& array) {
  return array ? *array : GivenArray{nb::none()};
}

/// Adds forward, backward and weights, which both attention layers share.
template <class T, class Class>
void add_attention_steps(Class layer) {
  using Attention = LayerOf<T>;
  layer
      .def(
          "forward",
          [](Attention& self, const GivenArray& query, const GivenArray& keys,
             const std::optional<GivenArray>& values, const std::optional<GivenIntegers>& lengths) {
            const auto counted = lengths_or_none(lengths, "lengths");
            return self.forward(
                {{query, "query"}, {keys, "keys"}, {array_or_none(values), "values"}},
                [&](const auto& in) { return self.layer.forward(in[0], in[1], in[2], counted); });
          },
          "query"_a, "keys"_a, "values"_a = nb::none(), nb::kw_only(), "lengths"_a = nb::none(),
          R"(query [batch, q_len, query_dim], keys [batch, kv_len, key_dim]; returns the context
[batch, q_len, value_dim], zeros if an item has no key.

values   [batch, kv_len, value_dim]; the keys themselves by default
lengths  number of valid keys per batch item; all by default)")
      .def(
          "backward",
          [](Attention& self, const GivenArray& grad_context) {
            return self.backward(
                grad_context,
                [&](const auto& grad) {
                  const auto gradients = self.layer.backward(grad);
                  return ThreeGradients{gradients.query, gradients.keys, gradients.values};
                },
                "grad_context");
          },
          "grad_context"_a,
          "grad_context has the context's shape; returns the gradients (grad_query, grad_keys,\n"
          "grad_values). If the values were the keys, grad_values is None and grad_keys has the "
          "sum.")
      .def(
          "weights",
          [](Attention& self) {
            return self.look("weights", [&] { return TensorView(self.layer.weights()); });
          },
          "Returns the weights of the last forward: [batch, q_len, kv_len].");
}

void add_attentions(nb::module_& module) {
  add_attention_steps<nn::AdditiveAttention>(add_layer(
      module, "AdditiveAttention",
      R"(Additive attention: scores from a small network (Bahdanau et al. 2015, appendix A.1.2):

  score = v . tanh(W_q query + W_k key [+ b]),  weights = softmax(scores)

with query_proj.weight [dim, query_dim], key_proj.weight [dim, key_dim], v [dim], and if bias=True
b [dim].)",
      +[](const nn::Scope& scope, std::int64_t query_dim, std::int64_t key_dim, std::int64_t dim,
          bool bias) { return nn::AdditiveAttention(scope, query_dim, key_dim, dim, bias); },
      "query_dim"_a, "key_dim"_a, "dim"_a, "bias"_a = false, nb::kw_only()));
  add_attention_steps<nn::GeneralAttention>(add_layer(
      module, "GeneralAttention",
      R"(Attention with scores key . W query (Luong et al. 2015, eq. 8), computed by the fused kernels.
Parameter: query_proj.weight [key_dim, query_dim].)",
      +[](const nn::Scope& scope, std::int64_t query_dim, std::int64_t key_dim) {
        return nn::GeneralAttention(scope, query_dim, key_dim);
      },
      "query_dim"_a, "key_dim"_a, nb::kw_only()));
}

void add_gru(nb::module_& module) {
  using Gru = LayerOf<nn::Gru>;
  add_layer(
      module, "Gru",
      R"(Gated recurrent units (Cho et al. 2014) over sequences, optionally in both directions, as
torch.nn.GRU(in_features, hidden, batch_first=True) with one layer. Parameters: weight_ih_l0,
weight_hh_l0, bias_ih_l0, bias_hh_l0, and the same with the suffix "_reverse".)",
      +[](const nn::Scope& scope, std::int64_t in, std::int64_t hidden, bool bidirectional) {
        return nn::Gru(scope, in, hidden, bidirectional);
      },
      "in_features"_a, "hidden"_a, "bidirectional"_a = false, nb::kw_only())
      .def(
          "forward",
          [](Gru& self, const GivenArray& x, const std::optional<GivenArray>& initial,
             const std::optional<GivenIntegers>& lengths) {
            const auto counted = lengths_or_none(lengths, "lengths");
            return self.forward(
                {{x, "x"}, {array_or_none(initial), "initial"}},
                [&](const auto& in) { return self.layer.forward(in[0], counted, in[1]); });
          },
          "x"_a, "initial"_a = nb::none(), nb::kw_only(), "lengths"_a = nb::none(),
          R"(x [batch, length, in_features]; returns [batch, length, directions * hidden], zeros beyond
an item's length.

initial  [directions, batch, hidden], the initial state of each direction; zeros by default
lengths  number of valid steps per batch item; all by default)")
      .def(
          "final_hidden",
          [](Gru& self) {
            return self.look("final_hidden", [&] { return TensorView(self.layer.final_hidden()); });
          },
          "Returns the final state of each direction of the last forward: [directions, batch, "
          "hidden].")
      .def(
          "backward",
          [](Gru& self, const GivenArray& grad_y, const std::optional<GivenArray>& grad_final) {
            std::optional<ContiguousArray> grad_hidden;
            if (grad_final) grad_hidden.emplace(Input{*grad_final, "grad_final"});
            return self.backward(grad_y, [&](const auto& grad) {
              const auto gradients =
                  self.layer.backward(grad, grad_hidden ? grad_hidden->view() : TensorView());
              return std::pair<TensorView, TensorView>{gradients.x, gradients.initial};
            });
          },
          "grad_y"_a, "grad_final"_a = nb::none(),
          "grad_y has the result's shape, grad_final that of final_hidden(), zeros by default.\n"
          "Returns the gradients (grad_x, grad_initial).");
}

void add_decoder(nb::module_& module) {
  using Decoder = LayerOf<nn::GruDecoder>;
  add_layer(
      module, "GruDecoder",
      R"(The decoder of Bahdanau et al. 2015, appendix A.2.2. At each step

  context = additive attention of the previous hidden state to the encoder's outputs
  hidden  = cell([embedding; context], previous hidden)
  y       = [hidden; context; embedding]

Parameters: attention.query_proj.weight, attention.key_proj.weight, attention.v, and
cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh as in torch.nn.GRUCell.)",
      +[](const nn::Scope& scope, std::int64_t embed_dim, std::int64_t hidden,
          std::int64_t encoder_dim, std::int64_t attention_dim) {
        return nn::GruDecoder(scope, {.embed_dim = embed_dim,
                                      .hidden = hidden,
                                      .encoder_dim = encoder_dim,
                                      .attention_dim = attention_dim});
      },
      "embed_dim"_a, "hidden"_a, "encoder_dim"_a, "attention_dim"_a, nb::kw_only())
      .def(
          "forward",
          [](Decoder& self, const GivenArray& embeddings, const GivenArray& encoder,
             const GivenArray& initial, const std::optional<GivenIntegers>& lengths) {
            const auto counted = lengths_or_none(lengths, "lengths");
            return self.forward(
                {{embeddings, "embeddings"}, {encoder, "encoder"}, {initial, "initial"}},
                [&](const auto& in) { return self.layer.forward(in[0], in[1], in[2], counted); });
          },
          "embeddings"_a, "encoder"_a, "initial"_a, nb::kw_only(), "lengths"_a = nb::none(),
          R"(embeddings [batch, length, embed_dim], of the previous token at each step; encoder
[batch, kv_len, encoder_dim]; initial [batch, hidden]. Returns [batch, length, hidden + encoder_dim +
embed_dim].

lengths  number of valid encoder outputs per batch item; all by default)")
      .def(
          "backward",
          [](Decoder& self, const GivenArray& grad_y) {
            return self.backward(grad_y, [&](const auto& grad) {
              const auto gradients = self.layer.backward(grad);
              return ThreeGradients{gradients.embeddings, gradients.encoder, gradients.initial};
            });
          },
          "grad_y"_a,
          "grad_y has the result's shape; returns the gradients (grad_embeddings, grad_encoder,\n"
          "grad_initial).")
      .def(
          "weights",
          [](Decoder& self) { return self.look("weights", [&] { return self.layer.weights(); }); },
          "Returns the attention weights of the last forward: [batch, length, kv_len].");
}

}  // namespace

void add_recurrent(nb::module_& module) {
  add_attentions(module);
  add_gru(module);
  add_decoder(module);
}

}  // namespace fovea::python
