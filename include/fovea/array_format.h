// SPDX-License-Identifier: Apache-2.0
//
// Tensors as text, laid out as NumPy lays them out, so that what Fovea prints can be compared with
// a notebook line by line. Built on the tensors alone.

#pragma once

#include <cstdint>
#include <string>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea {

/// How many digits after the point a float shows. "Needed" digits are the fewest that no other
/// number of the same type shares.
enum class FloatMode : std::uint8_t {
  kFixed,         ///< exactly `precision`
  kUnique,        ///< as many as needed; `precision` is ignored
  kMaxprec,       ///< as many as needed, at most `precision`
  kMaxprecEqual,  ///< at most `precision`, and equally many in the whole tensor
};

/// ArrayFormat::precision is at most this: no double has more digits after its point.
inline constexpr int kMaxPrecision = 1074;

/// The options of `numpy.set_printoptions`, with NumPy's defaults.
struct ArrayFormat {
  int precision = 8;              ///< digits after the point, 0 .. kMaxPrecision
  std::int64_t threshold = 1000;  ///< a tensor with more elements is summarised
  int edge_items = 3;             ///< what a summary keeps at either end of a dimension
  int line_width = 75;            ///< columns before a row is wrapped
  bool suppress = false;          ///< keep small and widely spread numbers out of scientific form
  FloatMode mode = FloatMode::kMaxprec;
};

/// `values` as `numpy.array2string` of NumPy 2.4 prints it, character by character.
///
/// Layout   all elements share one width. Rows wrap beyond line_width columns; a tensor of more
/// than
///          threshold elements shows edge_items at either end and "..." between. Any dimension of
///          extent 0 gives "[]". A tensor without dimensions gives its number, unpadded, in the
///          same form ("1." for 1.0, where Python's str() of the NumPy scalar says "1.0").
/// Form     floats turn scientific when the largest finite |x| >= 1e8 (float32: 1e6), or, unless
///          suppress is set, when the smallest non-zero |x| < 1e-4 or largest / smallest > 1000.
/// Numerics digits are those of the exact binary value, correctly rounded, ties to even.
/// Locale   none: the text is the same everywhere.
/// Errors   throws InvalidArgument for an absent tensor or a negative or too large option.
FOVEA_API std::string format_array(const TensorView& values, const ArrayFormat& options = {});

}  // namespace fovea
