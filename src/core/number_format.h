// SPDX-License-Identifier: Apache-2.0
//
// One format for all numbers of a tensor: NumPy's FloatingFormat, IntegerFormat and BoolFormat.
// format_array puts brackets around its columns; labelled tables put names around them.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/array_format.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Chosen once from the numbers that are to be shown together, then applied to each of them.
class FOVEA_API NumberFormat {
 public:
  /// Uses `precision`, `suppress` and `mode` of the options; the layout is the caller's matter.
  /// Throws InvalidArgument for an absent tensor or a precision out of range.
  NumberFormat(const TensorView& values, const ArrayFormat& options);

  /// A number of the tensor in exactly width() columns, points aligned. Any other number gets the
  /// same digits, and more columns if it needs them.
  std::string padded(double value) const;

  /// The element at `index` of a tensor of the same type: exact for all of int64.
  std::string padded(const TensorView& values, const Index& index) const;

  /// The same text without the spaces around it.
  std::string trimmed(double value) const;

  /// Columns per number; 0 for a tensor without elements.
  int width() const { return width_; }

  /// Whether numbers read 1.5e+10.
  bool scientific() const { return scientific_; }

 private:
  void fit_floats(const TensorView& values, bool suppress);
  void fit_integers(const TensorView& values);
  std::string padded_float(double value) const;
  std::string padded_bool(bool value) const;

  DType dtype_;
  FloatMode mode_;
  int precision_;       // most digits after the point; negative: as many as needed
  int min_digits_ = 0;  // least digits after the point
  bool scientific_ = false;
  bool scalar_ = false;  // no dimensions
  int width_ = 0;
  int left_columns_ = 0;   // before the point, sign included
  int right_columns_ = 0;  // after the point, exponent included
  int exponent_digits_ = 0;
};

}  // namespace fovea
