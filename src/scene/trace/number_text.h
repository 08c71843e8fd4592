// SPDX-License-Identifier: Apache-2.0
//
// Formats the numbers of an array: integers without decimals, other numbers with a common number of
// decimals, or in scientific notation if at least half of them would otherwise appear as zero.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/tensor.h"

#include "core/number_format.h"

namespace fovea::scene {

/// The notation of numbers that are too small for the decimals shown.
enum class SmallNumbers : std::uint8_t {
  kScientific,  ///< rounded to zero, or all numbers in scientific notation if half of them are
                ///< small
  kBound,       ///< "<0.0001", and a bare "0" for zero; never scientific below 1e8. For shares.
};

class NumberText {
 public:
  /// Uses at most `precision` decimals, or fewer if all numbers are exact with fewer. Non-finite
  /// values affect only the width.
  NumberText(const TensorView& values, int precision,
             SmallNumbers small = SmallNumbers::kScientific);

  /// Returns the number right-aligned in width() columns, with aligned decimal points.
  std::string padded(double value) const;
  /// Returns the number without surrounding spaces.
  std::string trimmed(double value) const;
  int width() const { return width_; }
  /// Returns the smallest number shown, such as "0.0001", with SmallNumbers::kBound; otherwise "".
  const std::string& least() const { return least_; }
  /// Returns whether the number is shown as a bound: "<0.0001", ">-0.0001" or "0".
  bool is_bound(double value) const;
  /// Returns whether all numbers are integers.
  bool whole() const { return !format_; }

 private:
  std::optional<NumberFormat> format_;  // absent for integers
  std::string least_;
  double half_least_ = 0.0;  // smaller numbers would be rounded to 0
  int width_ = 0;
};

}  // namespace fovea::scene
