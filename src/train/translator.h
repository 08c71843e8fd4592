// SPDX-License-Identifier: Apache-2.0
//
// A model that reads one text and writes another, whatever it is made of.

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

/// "transformer" or "gru".
std::string_view architecture_name(Architecture architecture);

/// What a translator is like, beside its parameters' numbers.
struct TranslatorOptions {
  Architecture architecture = Architecture::kTransformer;
  std::int64_t source_symbols = 0;  ///< tokens that there are (Vocabulary::size)
  std::int64_t target_symbols = 0;
  std::int64_t max_length = 0;  ///< of sources and targets, in tokens
  std::int64_t width = 64;      ///< of embeddings and what is made of them
  std::int64_t heads = 4;       ///< of the transformer, as the three below
  std::int64_t inner = 128;
  std::int64_t encoder_layers = 2;
  std::int64_t decoder_layers = 2;
  /// Self-attention turns queries and keys by angles of this base; 0: it does not. Texts of tens of
  /// characters need neighbours told apart rather than a book's chapters.
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

  /// What is said to come next, [batch, length, target_symbols], before any softmax.
  virtual MutableTensorView forward(const Batch& batch) = 0;
  /// From its gradient to those of all parameters.
  virtual void backward(const TensorView& grad_logits) = 0;

  /// Reads sources, int64 [batch, length], to be continued by `sequences`: one each, or any number
  /// of the only one. The model is to evaluate.
  virtual void begin(const TensorView& source, const std::vector<std::int64_t>& lengths,
                     std::int64_t sequences) = 0;
  /// The next token of each sequence, int64 [sequences]: what is said to come then,
  /// [sequences, target_symbols].
  virtual MutableTensorView step(const TensorView& tokens) = 0;
  /// Sequence i goes on from what sequence rows[i] was; of one source only.
  virtual void reorder(std::span<const std::int64_t> rows) = 0;
  /// Where each sequence's last step looked: [sequences, source length].
  virtual Tensor weights() const = 0;

 protected:
  /// With what every architecture begins: source_embedding and target_embedding.
  explicit Translator(const TranslatorOptions& options);

  TranslatorOptions options_;
  nn::Model model_;
  nn::Embedding source_embedding_, target_embedding_;
  nn::DropoutLayer source_dropout_, target_dropout_;
};

/// Throws InvalidArgument for options that make no model.
std::unique_ptr<Translator> make_translator(const TranslatorOptions& options);

}  // namespace fovea::train
