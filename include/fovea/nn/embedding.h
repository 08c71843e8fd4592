// SPDX-License-Identifier: Apache-2.0
//
// Token and position embeddings.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// A table of vectors, looked up by token id.
class FOVEA_API Embedding {
 public:
  /// Creates weight [count, width], standard normal like PyTorch's nn.Embedding. The row `padding`
  /// is zero and gets no gradient.
  Embedding(const Scope& scope, std::int64_t count, std::int64_t width,
            std::optional<std::int64_t> padding = std::nullopt);

  /// Takes tokens as int64 [...], each in 0 .. count - 1. Returns [..., width].
  MutableTensorView forward(const TensorView& tokens);
  /// Takes grad_y [..., width]. Tokens have no gradient.
  void backward(const TensorView& grad_y);

 private:
  std::int64_t width_;
  std::optional<std::int64_t> padding_;
  Parameter& weight_;
  Buffer tokens_, y_;
};

/// Returns the sinusoidal embedding of Vaswani et al. 2017, sec. 3.5: [length, width], for position
/// p and pair i
///   [p, 2 i] = sin(p / 10000^(2 i / width)),  [p, 2 i + 1] = cos(p / 10000^(2 i / width)).
/// Throws InvalidArgument if an extent is negative.
FOVEA_API Tensor sinusoidal_positions(std::int64_t length, std::int64_t width,
                                      DType dtype = DType::kFloat32);

/// The kind of position embedding added to tokens. (Rotary embedding is part of attention:
/// MultiHeadAttentionOptions::rotary.)
enum class PositionKind : std::uint8_t { kNone, kSinusoidal, kLearned };

/// Adds a position vector to each row: x [batch, length, width] += table[first .. first + length].
class FOVEA_API Positions {
 public:
  /// kLearned: creates weight [max_length, width], normal with standard deviation 0.02.
  /// kSinusoidal: a constant table.
  Positions(const Scope& scope, PositionKind kind, std::int64_t max_length, std::int64_t width);

  /// The rows have positions `first`, `first` + 1 and so on. Throws InvalidArgument if a position
  /// is not below max_length.
  void forward(const MutableTensorView& x, std::int64_t first = 0);
  /// Adds to the gradient of a learned table. The gradient of x is grad_y itself.
  void backward(const TensorView& grad_y);

 private:
  PositionKind kind_;
  std::int64_t max_length_, width_;
  Parameter* weight_ = nullptr;
  Tensor table_;
  Shape shape_;  // shape of x
  std::int64_t first_ = 0;
};

}  // namespace fovea::nn
