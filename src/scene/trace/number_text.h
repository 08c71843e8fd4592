// SPDX-License-Identifier: Apache-2.0
//
// How the numbers of one array are shown: whole numbers as such, the others with one number of
// decimals, in scientific notation where at least half of them would otherwise show as zero.

#pragma once

#include <optional>
#include <string>

#include "fovea/tensor.h"

#include "core/number_format.h"

namespace fovea::scene {

class NumberText {
 public:
  /// At most `precision` decimals; fewer where every number is exact with fewer. Values that are
  /// not finite take part in the width only.
  NumberText(const TensorView& values, int precision);

  /// Right-aligned in width() columns, decimal points below each other.
  std::string padded(double value) const;
  /// The same without the spaces around it.
  std::string trimmed(double value) const;
  int width() const { return width_; }

 private:
  std::optional<NumberFormat> format_;  // none for whole numbers
  int width_ = 0;
};

}  // namespace fovea::scene
