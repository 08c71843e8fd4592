// SPDX-License-Identifier: Apache-2.0
//
// Token-by-token decoding with key/value caches.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {

/// Sequences that a transformer's decoder extends token by token. The transformer must outlive this
/// object. Supports float32 only, and no dropout: step throws InvalidArgument in training mode with
/// dropout.
class FOVEA_API TransformerDecoding {
 public:
  /// Takes the encoder's memory [batch, kv_len, width] and its source_lengths (empty: no padding).
  /// `sequences` must equal batch; if batch is 1, any number of sequences can share the memory.
  TransformerDecoding(Transformer& transformer, const TensorView& memory, std::int64_t sequences,
                      const std::vector<std::int64_t>& source_lengths = {});

  /// Returns the decoder's output for the next token of each sequence, x [sequences, 1, width], in
  /// the same shape.
  MutableTensorView step(const TensorView& x);
  /// Replaces sequence i by a copy of sequence rows[i], as in beam search. Requires a memory with
  /// one item.
  void reorder(std::span<const std::int64_t> rows);
  /// Returns the cross-attention weights of each sequence's last token, [sequences, kv_len],
  /// averaged over all layers and heads.
  Tensor weights() const;
  /// Returns the number of tokens decoded so far.
  std::int64_t length() const { return length_; }

 private:
  Transformer& transformer_;
  std::vector<TransformerDecoderLayer::Caches> caches_;
  Mask memory_mask_;
  std::int64_t length_ = 0;
};

}  // namespace fovea::nn
