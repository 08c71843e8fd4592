// SPDX-License-Identifier: Apache-2.0
//
// The interface of models that read one text and write another.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/nn/dropout_layer.h"
#include "fovea/nn/embedding.h"
#include "fovea/nn/model.h"
#include "fovea/tensor.h"

#include "train/batches.h"

namespace fovea::train {

enum class Architecture : std::uint8_t { kTransformer, kGru };

/// Returns "transformer" or "gru".
std::string_view architecture_name(Architecture architecture);

/// The architecture, sizes and seed of a translator: everything but its parameters' values.
struct TranslatorOptions {
  Architecture architecture = Architecture::kTransformer;
  std::int64_t source_symbols = 0;  ///< number of tokens (Vocabulary::size)
  std::int64_t target_symbols = 0;
  std::int64_t max_length = 0;  ///< the maximum number of tokens of sources and targets
  std::int64_t width = 64;      ///< size of embeddings and hidden states
  std::int64_t heads = 4;       ///< only for the transformer, as are the next four options
  std::int64_t inner = 128;
  std::int64_t encoder_layers = 2;
  std::int64_t decoder_layers = 2;
  /// The base of the rotary embeddings of self-attention; 0: none. The base is small because texts
  /// have only tens of characters, and neighbouring positions must be easy to distinguish.
  double rotary_base = 100.0;
  double dropout = 0.05;
  std::uint64_t seed = 0;
};

class Translator {
 public:
  virtual ~Translator() = default;

  nn::Model& model() { return model_; }
  const nn::Model& model() const { return model_; }
  const TranslatorOptions& options() const { return options_; }

  /// Returns the logits of the next token, [batch, length, target_symbols].
  virtual MutableTensorView forward(const Batch& batch) = 0;
  /// Adds to the gradients of all parameters. `grad_logits` is the gradient of the logits.
  virtual void backward(const TensorView& grad_logits) = 0;

  /// Encodes sources, int64 [batch, length], and starts decoding `sequences` outputs: one per
  /// source, or any number for a single source. The model must be in evaluation mode.
  virtual void begin(const TensorView& source, const std::vector<std::int64_t>& lengths,
                     std::int64_t sequences) = 0;
  /// Appends a token to each sequence; `tokens` is int64 [sequences]. Returns the logits of the
  /// following token, [sequences, target_symbols].
  virtual MutableTensorView step(const TensorView& tokens) = 0;
  /// Replaces sequence i by sequence rows[i]. Only for a single source.
  virtual void reorder(std::span<const std::int64_t> rows) = 0;
  /// Returns the attention weights of each sequence's last step, [sequences, source length].
  virtual Tensor weights() const = 0;

 protected:
  /// Adds the parameters that every architecture has: source_embedding and target_embedding.
  explicit Translator(const TranslatorOptions& options);

  TranslatorOptions options_;
  nn::Model model_;
  nn::Embedding source_embedding_, target_embedding_;
  nn::DropoutLayer source_dropout_, target_dropout_;
};

/// Returns a translator of the given architecture. Throws InvalidArgument for invalid options.
std::unique_ptr<Translator> make_translator(const TranslatorOptions& options);

}  // namespace fovea::train
