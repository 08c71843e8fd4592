// SPDX-License-Identifier: Apache-2.0
//
// Rows of floats on their way from one tensor to another: converted, and rotated where that is
// asked for. What caches append with, and apply_rotary.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea {

/// Positions are int64 up to this either way, where float64 still holds each of them.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 53;

/// A Rotary for rows of one length, at one position at a time.
class Rotation {
 public:
  /// Throws InvalidArgument where `rotary` does not fit rows of `head_dim`, or itself.
  Rotation(const Rotary& rotary, std::int64_t head_dim);

  /// Computes the sines and cosines of `position`, unless it is there already.
  void move_to(std::int64_t position);

  /// Rotates a row of head_dim numbers at the position moved to.
  template <class T>
  void rotate(T* row) const;

 private:
  std::vector<double> frequencies_;  // of each pair
  std::vector<double> cosines_;
  std::vector<double> sines_;
  std::int64_t partner_ = 1;  // from the first of a pair to the second
  std::int64_t step_ = 2;     // from a pair to the next
  std::optional<std::int64_t> position_;
};

/// Where rows stand: the tensor's number if there is one, int64 [length] or [batch, length]; else
/// `first` and on.
struct Positions {
  std::int64_t first = 0;
  TensorView given = {};

  std::int64_t at(std::int64_t batch, std::int64_t token) const {
    if (!given.defined()) return first + token;
    return given.rank() == 1 ? given.at<std::int64_t>({token})
                             : given.at<std::int64_t>({batch, token});
  }
};

/// Writes source [..., length, dim] to target, of the same shape; floats of any type and any
/// strides, each number rounded once. `rotation` may be null.
void write_rows(const TensorView& source, const MutableTensorView& target, Rotation* rotation,
                const Positions& positions);

}  // namespace fovea
