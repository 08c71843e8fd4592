// SPDX-License-Identifier: Apache-2.0
//
// Formatting of tensors as text in NumPy's layout, so that Fovea's output can be compared with a
// notebook line by line. Depends only on fovea/tensor.h.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// The number of digits after the decimal point of a float. The digits "needed" are the fewest that
/// distinguish the number from all others of its type.
enum class FloatMode : std::uint8_t {
  kFixed,         ///< exactly `precision`
  kUnique,        ///< as many as needed; `precision` is ignored
  kMaxprec,       ///< as many as needed, at most `precision`
  kMaxprecEqual,  ///< as kMaxprec, with the same number of digits for all elements
};

/// The maximum of ArrayFormat::precision. No double has more digits after the decimal point.
inline constexpr int kMaxPrecision = 1074;

/// The options of `numpy.set_printoptions`, with NumPy's defaults.
struct ArrayFormat {
  int precision = 8;              ///< digits after the decimal point, 0 .. kMaxPrecision
  std::int64_t threshold = 1000;  ///< tensors with more elements are summarised
  int edge_items = 3;             ///< elements shown at each end of a dimension in a summary
  int line_width = 75;            ///< rows are wrapped beyond this column
  bool suppress = false;          ///< no scientific notation for small or widely spread numbers
  FloatMode mode = FloatMode::kMaxprec;
};

/// Returns the same text as `numpy.array2string` of NumPy 2.4, character by character.
///
/// Layout   all elements have the same width. Rows are wrapped beyond line_width columns. A tensor
///          with more than `threshold` elements shows edge_items elements at each end of a
///          dimension, with "..." between them. A tensor with a dimension of extent 0 gives "[]". A
///          tensor without dimensions gives its number without padding, in the same notation ("1."
///          for 1.0, unlike Python's str() of the NumPy scalar, which gives "1.0").
/// Notation floats are scientific if the largest finite |x| >= 1e8 (float32: 1e6), or, unless
///          suppress is set, if the smallest non-zero |x| < 1e-4 or largest / smallest > 1000.
/// Numerics digits are those of the exact binary value, correctly rounded, ties to even.
/// Locale   ignored: the text is the same in every locale.
/// Errors   throws InvalidArgument if the tensor is undefined, or an option is negative or too
///          large.
FOVEA_API std::string format_array(const TensorView& values, const ArrayFormat& options = {});

}  // namespace fovea
