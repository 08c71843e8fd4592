// SPDX-License-Identifier: Apache-2.0
//
// Attention with learned projections, and the transformer layers.

#include "fovea/nn/transformer.h"

#include <cstdint>
#include <optional>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "fovea/nn/multi_head_attention.h"

#include "arrays/calls.h"
#include "attention/options.h"
#include "nn/layer.h"
#include "nn/words.h"
#include "problem/mask_rules.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

using Attention = LayerOf<nn::MultiHeadAttention>;
using EncoderLayer = LayerOf<nn::TransformerEncoderLayer>;
using DecoderLayer = LayerOf<nn::TransformerDecoderLayer>;
using Transformer = LayerOf<nn::Transformer>;
using TwoGradients = std::pair<TensorView, TensorView>;

constexpr const char* kBlockBackwardDoc = "grad_y has x's shape; returns the gradient of x.";

/// Returns the mask with its own copies of the caller's arrays.
Mask copied(const Mask& mask) {
  const MaskRule rule = rule_of(mask);
  switch (rule.kind) {
    case MaskRule::Kind::kDense:
      return dense(Tensor(rule.dense.view()));
    case MaskRule::Kind::kBoth:
      return copied(rule.operands[0]) & copied(rule.operands[1]);
    case MaskRule::Kind::kEither:
      return copied(rule.operands[0]) | copied(rule.operands[1]);
    default:
      return mask;  // owns its numbers
  }
}

/// Backward needs the mask again, and the caller may change arrays before it.
Mask mask_or_none(const GivenMask& mask) {
  return mask.object.is_none() ? Mask() : copied(mask_of(mask.object.ptr()));
}

std::optional<Rotary> rotary_or_none(const Rotary* rotary) {
  return rotary == nullptr ? std::nullopt : std::optional<Rotary>(*rotary);
}

/// Returns layers[number]; negative numbers count from the end.
template <class Layers>
auto& layer_at(Layers& layers, std::int64_t number) {
  const auto count = static_cast<std::int64_t>(layers.size());
  if (number < -count || number >= count) {
    raise_value_error("layer: expected {} to {}, got {}", -count, count - 1, number);
  }
  return layers[static_cast<std::size_t>(number < 0 ? number + count : number)];
}

void add_attention(nb::module_& module) {
  add_layer(
      module, "MultiHeadAttention",
      R"(Multi-head attention (Vaswani et al. 2017, sec. 3.2.2) on the fused kernels, with input and output
projections. Neither scores nor weights are stored.

kv_heads  number of key heads, a divisor of heads (grouped heads); heads by default
dropout   of the weights
rotary    a fovea.Rotary for queries and keys, in self-attention

Parameters are those of torch.nn.MultiheadAttention(width, heads, batch_first=True): in_proj_weight
[(heads + 2 kv_heads) head_dim, width], in_proj_bias, out_proj.weight, out_proj.bias.)",
      +[](const nn::Scope& scope, std::int64_t width, std::int64_t heads,
          std::optional<std::int64_t> kv_heads, double dropout, bool bias, const Rotary* rotary) {
        return nn::MultiHeadAttention(scope, {.width = width,
                                              .heads = heads,
                                              .kv_heads = kv_heads.value_or(heads),
                                              .dropout = dropout,
                                              .bias = bias,
                                              .rotary = rotary_or_none(rotary)});
      },
      "width"_a, "heads"_a, nb::kw_only(), "kv_heads"_a = nb::none(), "dropout"_a = 0.0,
      "bias"_a = true, "rotary"_a.none() = nb::none())
      .def(
          "forward",
          [](Attention& self, const GivenArray& x, const std::optional<GivenArray>& memory,
             const GivenMask& mask) {
            const Mask rules = mask_or_none(mask);
            return self.forward(
                {{x, "x"}, {memory.value_or(GivenArray{nb::none()}), "memory"}},
                [&](const auto& in) { return self.layer.forward(in[0], in[1], rules); });
          },
          "x"_a, "memory"_a = nb::none(), nb::kw_only(), "mask"_a = nb::none(),
          R"(x [batch, length, width]; returns the same shape.

memory  [batch, kv_len, width]: source of keys and values; x itself by default
mask    which keys each query may attend to: a fovea.Mask, for example fovea.causal() &
        fovea.key_lengths([3, 5]), or a bool array, True where visible. Query i is aligned with key
        i (top left) for all lengths.)")
      .def(
          "backward",
          [](Attention& self, const GivenArray& grad_y) -> nb::object {
            const MutableTensorView memory = self.inputs()[1];
            if (!memory.defined()) {
              return self
                  .backward(grad_y,
                            [&](const auto& grad) { return TensorView(self.layer.backward(grad)); })
                  .object;
            }
            return nb::cast(self.backward(grad_y, [&](const auto& grad) {
              const MutableTensorView grad_memory = self.zeros_like(memory);
              return TwoGradients{self.layer.backward(grad, grad_memory), grad_memory};
            }));
          },
          "grad_y"_a, nb::sig("def backward(self, grad_y: _Input) -> typing.Any"),
          "grad_y has x's shape; returns the gradient of x, or (grad_x, grad_memory) if forward "
          "had "
          "a\n"
          "memory.")
      .def(
          "weights",
          [](Attention& self) {
            return self.look("weights", [&] { return self.layer.weights(); });
          },
          "Returns the weights of the last forward, without dropout: [batch, heads, length, "
          "kv_len].\n"
          "Recomputed for inspection: needs the time and memory that fused attention saves.");
}

nn::TransformerOptions options_of(std::int64_t width, std::int64_t heads, std::int64_t inner,
                                  std::optional<std::int64_t> kv_heads, double dropout,
                                  const ActivationWord& activation, const NormWord& norm,
                                  const Rotary* rotary) {
  return {.width = width,
          .heads = heads,
          .kv_heads = kv_heads.value_or(heads),
          .inner = inner,
          .dropout = dropout,
          .activation = activation_of(activation),
          .norm = norm_place_of(norm),
          .rotary = rotary_or_none(rotary)};
}

/// Adds the class of a transformer layer whose arguments are the options of options_of().
template <class T>
auto add_block(nb::module_& module, const char* name, const char* doc) {
  return add_layer(
      module, name, doc,
      +[](const nn::Scope& scope, std::int64_t width, std::int64_t heads, std::int64_t inner,
          std::optional<std::int64_t> kv_heads, double dropout, const ActivationWord& activation,
          const NormWord& norm, const Rotary* rotary) {
        return T(scope,
                 options_of(width, heads, inner, kv_heads, dropout, activation, norm, rotary));
      },
      "width"_a, "heads"_a, "inner"_a, nb::kw_only(), "kv_heads"_a = nb::none(), "dropout"_a = 0.0,
      "activation"_a = "relu", "norm"_a = "after", "rotary"_a.none() = nb::none());
}

void add_encoder_layer(nb::module_& module) {
  add_block<nn::TransformerEncoderLayer>(
      module, "TransformerEncoderLayer",
      R"(Self-attention, then feed-forward, each with a norm and a residual connection.

inner       hidden width of the feed-forward block
kv_heads    number of key heads, a divisor of heads; heads by default
activation  "relu" or "gelu"
norm        "after" the sum, as in Vaswani et al. 2017, or "before" the block, which makes deep
            stacks easier to train (torch's norm_first=True)
rotary      a fovea.Rotary for self-attention

Parameters are those of torch.nn.TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2.)")
      .def(
          "forward",
          [](EncoderLayer& self, const GivenArray& x, const GivenMask& mask) {
            const Mask rules = mask_or_none(mask);
            return self.forward({{x, "x"}},
                                [&](const auto& in) { return self.layer.forward(in[0], rules); });
          },
          "x"_a, nb::kw_only(), "mask"_a = nb::none(),
          "x [batch, length, width]; returns the same shape.")
      .def(
          "backward",
          [](EncoderLayer& self, const GivenArray& grad_y) {
            return self.backward(
                grad_y, [&](const auto& grad) { return TensorView(self.layer.backward(grad)); });
          },
          "grad_y"_a, kBlockBackwardDoc)
      .def(
          "weights",
          [](EncoderLayer& self) {
            return self.look("weights", [&] { return self.layer.self_attention().weights(); });
          },
          "Returns the self-attention weights, as MultiHeadAttention.weights().");
}

void add_decoder_layer(nb::module_& module) {
  add_block<nn::TransformerDecoderLayer>(
      module, "TransformerDecoderLayer",
      R"(Self-attention, attention to a memory, then feed-forward. The arguments are the same as for
TransformerEncoderLayer. Parameters are those of torch.nn.TransformerDecoderLayer: self_attn,
multihead_attn, linear1, linear2, norm1 to norm3.)")
      .def(
          "forward",
          [](DecoderLayer& self, const GivenArray& x, const GivenArray& memory,
             const GivenMask& mask, const GivenMask& memory_mask) {
            const Mask rules = mask_or_none(mask), memory_rules = mask_or_none(memory_mask);
            return self.forward({{x, "x"}, {memory, "memory"}}, [&](const auto& in) {
              return self.layer.forward(in[0], in[1], rules, memory_rules);
            });
          },
          "x"_a, "memory"_a, nb::kw_only(), "mask"_a = nb::none(), "memory_mask"_a = nb::none(),
          "x [batch, length, width], memory [batch, kv_len, width]; returns x's shape. Pass\n"
          "mask=fovea.causal() for a decoder; by default nothing is masked.")
      .def(
          "backward",
          [](DecoderLayer& self, const GivenArray& grad_y) {
            return self.backward(grad_y, [&](const auto& grad) {
              const MutableTensorView grad_memory = self.zeros_like(self.inputs()[1]);
              return TwoGradients{self.layer.backward(grad, grad_memory), grad_memory};
            });
          },
          "grad_y"_a, "grad_y has x's shape; returns the gradients (grad_x, grad_memory).")
      .def(
          "weights",
          [](DecoderLayer& self) {
            return self.look("weights", [&] { return self.layer.self_attention().weights(); });
          },
          "Returns the self-attention weights, as MultiHeadAttention.weights().")
      .def(
          "cross_weights",
          [](DecoderLayer& self) {
            return self.look("cross_weights",
                             [&] { return self.layer.cross_attention().weights(); });
          },
          "Returns the weights of attention to the memory.");
}

void add_whole(nb::module_& module) {
  add_layer(
      module, "Transformer",
      R"(Encoder and decoder, each a stack of layers with a final norm. The arguments are the same as for
TransformerEncoderLayer. Parameters are those of torch.nn.Transformer: encoder.layers.0,
encoder.norm, decoder.layers.0, decoder.norm. Matrices have Glorot uniform initialisation.)",
      +[](const nn::Scope& scope, std::int64_t encoder_layers, std::int64_t decoder_layers,
          std::int64_t width, std::int64_t heads, std::int64_t inner,
          std::optional<std::int64_t> kv_heads, double dropout, const ActivationWord& activation,
          const NormWord& norm, const Rotary* rotary) {
        return nn::Transformer(
            scope, encoder_layers, decoder_layers,
            options_of(width, heads, inner, kv_heads, dropout, activation, norm, rotary));
      },
      "encoder_layers"_a, "decoder_layers"_a, "width"_a, "heads"_a, "inner"_a, nb::kw_only(),
      "kv_heads"_a = nb::none(), "dropout"_a = 0.0, "activation"_a = "relu", "norm"_a = "after",
      "rotary"_a.none() = nb::none())
      .def(
          "forward",
          [](Transformer& self, const GivenArray& source, const GivenArray& target,
             const std::optional<GivenIntegers>& source_lengths) {
            const auto lengths = lengths_or_none(source_lengths, "source_lengths");
            return self.forward({{source, "source"}, {target, "target"}}, [&](const auto& in) {
              return self.layer.forward(in[0], in[1], lengths);
            });
          },
          "source"_a, "target"_a, nb::kw_only(), "source_lengths"_a = nb::none(),
          R"(source [batch, kv_len, width], target [batch, length, width] with a causal mask; returns
target's shape.

source_lengths  number of valid source rows per batch item; the rest is padding)")
      .def(
          "backward",
          [](Transformer& self, const GivenArray& grad_y) {
            return self.backward(grad_y, [&](const auto& grad) {
              const nn::Transformer::Gradients gradients = self.layer.backward(grad);
              return TwoGradients{gradients.source, gradients.target};
            });
          },
          "grad_y"_a,
          "grad_y has target's shape; returns the gradients (grad_source, grad_target).")
      .def(
          "encode",
          [](Transformer& self, const GivenArray& source,
             const std::optional<GivenIntegers>& source_lengths) {
            const auto lengths = lengths_or_none(source_lengths, "source_lengths");
            return self.forward(
                {{source, "source"}},
                [&](const auto& in) { return self.layer.encode(in[0], lengths); },
                Layer::Next::kNone);
          },
          "source"_a, nb::kw_only(), "source_lengths"_a = nb::none(),
          "The encoder half of forward; returns the memory [batch, kv_len, width] for decode().")
      .def(
          "decode",
          [](Transformer& self, const GivenArray& target, const GivenArray& memory,
             const std::optional<GivenIntegers>& source_lengths) {
            const auto lengths = lengths_or_none(source_lengths, "source_lengths");
            return self.forward(
                {{target, "target"}, {memory, "memory"}},
                [&](const auto& in) { return self.layer.decode(in[0], in[1], lengths); },
                Layer::Next::kLook);
          },
          "target"_a, "memory"_a, nb::kw_only(), "source_lengths"_a = nb::none(),
          "The decoder half of forward, on the memory from encode(); returns target's shape. "
          "backward()\n"
          "is not available after encode() or decode().")
      .def(
          "cross_weights",
          [](Transformer& self, std::int64_t number) {
            const auto& layer = layer_at(self.layer.decoder_layers(), number);
            return self.look("cross_weights", [&] { return layer.cross_attention().weights(); });
          },
          "layer"_a = -1,
          "Returns the weights of a decoder layer's attention to the source, [batch, heads, "
          "length,\n"
          "kv_len]; the last layer's by default. Raises RuntimeError unless forward() or decode() "
          "was\n"
          "the last pass.");
}

}  // namespace

void add_transformer(nb::module_& module) {
  add_attention(module);
  add_encoder_layer(module);
  add_decoder_layer(module);
  add_whole(module);
}

}  // namespace fovea::python
