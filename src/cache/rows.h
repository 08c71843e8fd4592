// SPDX-License-Identifier: Apache-2.0
//
// Copying of rows of floats from one tensor to another, with type conversion and optional rotation.
// Used to append to the caches and by apply_rotary.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea {

/// Maximum absolute value of a position: float64 represents every integer up to it exactly.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 53;

/// Rotary embedding of rows of head_dim elements, at one position at a time.
class Rotation {
 public:
  /// Throws InvalidArgument if `rotary` is inconsistent or does not fit `head_dim`.
  Rotation(const Rotary& rotary, std::int64_t head_dim);

  /// Computes the sines and cosines of `position`, unless it is the current position.
  void move_to(std::int64_t position);

  /// Rotates a row of head_dim elements at the current position.
  template <class T>
  void rotate(T* row) const;

 private:
  std::vector<double> frequencies_;  // of each pair
  std::vector<double> cosines_;
  std::vector<double> sines_;
  std::int64_t partner_ = 1;  // offset from the first element of a pair to the second
  std::int64_t step_ = 2;     // offset from one pair to the next
  std::optional<std::int64_t> position_;
};

/// Positions of rows. If `given` (int64, [length] or [batch, length]) is defined, its elements are
/// the positions; otherwise, positions are consecutive and start at `first`.
struct Positions {
  std::int64_t first = 0;
  TensorView given = {};

  std::int64_t at(std::int64_t batch, std::int64_t token) const {
    if (!given.defined()) return first + token;
    return given.rank() == 1 ? given.at<std::int64_t>({token})
                             : given.at<std::int64_t>({batch, token});
  }
};

/// Writes source [..., length, dim] to target of the same shape. Both tensors may have any
/// floating-point type and any strides; each element is rounded once. `rotation` may be null.
void write_rows(const TensorView& source, const MutableTensorView& target, Rotation* rotation,
                const Positions& positions);

}  // namespace fovea
