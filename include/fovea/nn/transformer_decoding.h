// SPDX-License-Identifier: Apache-2.0
//
// Decoding token by token, with the keys and values of what was decoded kept.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {

/// Sequences that a transformer's decoder, which must outlive this, continues by a token at a time.
/// float32, and without dropout: the model is to evaluate.
class FOVEA_API TransformerDecoding {
 public:
  /// memory [batch, kv_len, width] as the encoder left it, with the lengths it was given (empty: no
  /// padding). There are `sequences` of them: `batch`, or where batch is 1 any number, which all
  /// see that memory.
  TransformerDecoding(Transformer& transformer, const TensorView& memory, std::int64_t sequences,
                      const std::vector<std::int64_t>& source_lengths = {});

  /// What the decoder makes of the next token of each sequence, x [sequences, 1, width]; of that
  /// shape.
  MutableTensorView step(const TensorView& x);
  /// Sequence i goes on as a copy of what sequence rows[i] was: as the beams of a search do. Only
  /// where the memory has one item.
  void reorder(std::span<const std::int64_t> rows);
  /// What each sequence's last token saw of the memory, the mean of all layers' heads:
  /// [sequences, kv_len].
  Tensor weights() const;
  /// Tokens so far.
  std::int64_t length() const { return length_; }

 private:
  Transformer& transformer_;
  std::vector<TransformerDecoderLayer::Caches> caches_;
  Mask memory_mask_;
  std::int64_t length_ = 0;
};

}  // namespace fovea::nn
