// SPDX-License-Identifier: Apache-2.0
//
// Formats the numbers of an array: integers without decimals, other numbers with a common number of
// decimals, or in scientific notation if at least half of them would otherwise appear as zero.

#pragma once

#include <optional>
#include <string>

#include "fovea/tensor.h"

#include "core/number_format.h"

namespace fovea::scene {

class NumberText {
 public:
  /// Uses at most `precision` decimals, or fewer if all numbers are exact with fewer. Non-finite
  /// values affect only the width.
  NumberText(const TensorView& values, int precision);

  /// Returns the number right-aligned in width() columns, with aligned decimal points.
  std::string padded(double value) const;
  /// Returns the number without surrounding spaces.
  std::string trimmed(double value) const;
  int width() const { return width_; }
  /// Returns whether all numbers are integers.
  bool whole() const { return !format_; }

 private:
  std::optional<NumberFormat> format_;  // absent for integers
  int width_ = 0;
};

}  // namespace fovea::scene
