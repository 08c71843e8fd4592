// SPDX-License-Identifier: Apache-2.0
//
// One format for all elements of a tensor, as in NumPy's FloatingFormat, IntegerFormat and
// BoolFormat. Used by format_array and by labelled tables.

#pragma once

#include <string>

#include "fovea/array_format.h"
#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// Common format of numbers that are shown together: chosen once, then applied to each number.
class FOVEA_API NumberFormat {
 public:
  /// Uses only `precision`, `suppress` and `mode` of the options; the caller handles the layout.
  /// Throws InvalidArgument if the tensor is undefined or the precision is out of range.
  NumberFormat(const TensorView& values, const ArrayFormat& options);

  /// Returns a number of the tensor in exactly width() columns, with decimal points aligned. A
  /// number that is not in the tensor gets the same number of digits, and may need more columns.
  std::string padded(double value) const;

  /// Returns the formatted element at `index` of a tensor of the same type. Exact for every int64.
  std::string padded(const TensorView& values, const Index& index) const;

  /// Returns padded(value) without leading and trailing spaces.
  std::string trimmed(double value) const;

  /// Returns the columns per number; 0 for an empty tensor.
  int width() const { return width_; }

  /// Whether numbers are in scientific notation (1.5e+10).
  bool scientific() const { return scientific_; }

 private:
  void fit_floats(const TensorView& values, bool suppress);
  void fit_integers(const TensorView& values);
  std::string padded_float(double value) const;
  std::string padded_bool(bool value) const;

  DType dtype_;
  FloatMode mode_;
  int precision_;       // maximum number of digits after the point; negative: no limit
  int min_digits_ = 0;  // minimum number of digits after the point
  bool scientific_ = false;
  bool scalar_ = false;  // no dimensions
  int width_ = 0;
  int left_columns_ = 0;   // before the point, sign included
  int right_columns_ = 0;  // after the point, exponent included
  int exponent_digits_ = 0;
};

}  // namespace fovea
