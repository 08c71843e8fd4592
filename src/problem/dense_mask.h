// SPDX-License-Identifier: Apache-2.0
//
// A mask in the form of a boolean tensor that broadcasts to the scores. The tensor is read in
// place.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

/// The mask rule that dense() creates. Its functions match those of Mask.
class DenseMask {
 public:
  explicit DenseMask(TensorRef tensor);

  const TensorRef& tensor() const { return tensor_; }

  bool visible(const ScorePosition& at) const;
  Visibility classify(const ScoreBlock& block) const;
  KeyRange key_range(const ScorePosition& first, std::int64_t count) const;
  void fill(const ScorePosition& first, std::int64_t count, std::uint8_t* visible) const;
  void validate(const ProblemShape& shape, std::span<const std::int64_t> key_starts) const;
  DenseMask part(const PartSpan& span) const;
  std::string to_string() const;

 private:
  const std::uint8_t* element(const ScorePosition& at) const;

  TensorRef tensor_;
  std::array<std::int64_t, 4> strides_;  // broadcast_strides(tensor_)
};

}  // namespace fovea
