// SPDX-License-Identifier: Apache-2.0
//
// A vector for each token, and one for each place.

#pragma once

#include <cstdint>
#include <optional>

#include "fovea/export.h"
#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"

namespace fovea::nn {

/// Rows of a table, by their numbers.
class FOVEA_API Embedding {
 public:
  /// weight [count, width], standard normal, as PyTorch's nn.Embedding. The row `padding` is zeros,
  /// and gets no gradient.
  Embedding(const Scope& scope, std::int64_t count, std::int64_t width,
            std::optional<std::int64_t> padding = std::nullopt);

  /// tokens int64 [...], each in 0 .. count - 1; returns [..., width].
  MutableTensorView forward(const TensorView& tokens);
  /// grad_y [..., width]. Tokens have no gradient.
  void backward(const TensorView& grad_y);

 private:
  std::int64_t width_;
  std::optional<std::int64_t> padding_;
  Parameter& weight_;
  Buffer tokens_, y_;
};

/// Sines and cosines of Vaswani et al. 2017, sec. 3.5: [length, width], at place p and pair i
///   [p, 2 i] = sin(p / 10000^(2 i / width)),  [p, 2 i + 1] = cos(p / 10000^(2 i / width)).
/// Throws InvalidArgument for negative extents.
FOVEA_API Tensor sinusoidal_positions(std::int64_t length, std::int64_t width,
                                      DType dtype = DType::kFloat32);

/// How tokens learn where they stand. (Rotary embedding belongs to attention:
/// MultiHeadAttentionOptions::rotary.)
enum class PositionKind : std::uint8_t { kNone, kSinusoidal, kLearned };

/// Adds a vector for its place to each row: x [batch, length, width] += table[0 .. length].
class FOVEA_API Positions {
 public:
  /// kLearned: weight [max_length, width], normal with deviation 0.02; kSinusoidal: a table that
  /// stays as it is.
  Positions(const Scope& scope, PositionKind kind, std::int64_t max_length, std::int64_t width);

  /// Rows stand at `first`, `first` + 1 and so on. Throws InvalidArgument beyond max_length.
  void forward(const MutableTensorView& x, std::int64_t first = 0);
  /// The gradient of x is grad_y itself.
  void backward(const TensorView& grad_y);

 private:
  PositionKind kind_;
  std::int64_t max_length_, width_;
  Parameter* weight_ = nullptr;
  Tensor table_;
  Shape shape_;  // of x
  std::int64_t first_ = 0;
};

}  // namespace fovea::nn
