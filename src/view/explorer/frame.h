// SPDX-License-Identifier: Apache-2.0
//
// Frames: the cells of a tile or thumbnail as 16-bit codes of the logarithms of weights, and their
// binary format "FVT1".
//
//    0  u32 length after this field    20  u16 columns
//    4  "FVT1"                         22  u16 rows
//    8  u8 format, 1: log16            24  u32 reserved, 0
//    9  u8 reduce, 0 mean, 1 max       28  f32 smallest positive value
//   10  u8 level                       32  f32 largest value
//   11  u8 flags (FrameFlags)          36  u32 reserved, 0
//   12  u32 x                          40  u16 codes, row-major; none if all cells are hidden
//   16  u32 y                              u8 a RowState per row; only with kPreview
//
// All numbers are little-endian. A frame without kPreview is final. With it, rows of
// RowState::kFinal are, and hidden cells everywhere; the others will change.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/lenses.h"

namespace fovea::view {

/// Codes: 0 hidden, 1 NaN, 2 exactly 0, 65535 not yet known, else 3 + round(1023 (64 + log2 w)),
/// clamped to 3 .. 65475. Monotone in the weight from kZeroCode to kMaxCode. Decoding gives w
/// within a factor of 2^(1 / 2046), that is 3.4e-4, for weights from 2^-64 to 1.
using Code = std::uint16_t;
inline constexpr Code kHiddenCode = 0;
inline constexpr Code kNanCode = 1;
inline constexpr Code kZeroCode = 2;
inline constexpr Code kMinCode = 3;      ///< 2^-64 and less
inline constexpr Code kMaxCode = 65475;  ///< 1
inline constexpr Code kUnknownCode = 65535;

/// Returns the code of a weight that is visible; not kHiddenCode.
Code encode_weight(float weight);
/// Returns the weight of a code; NaN for kNanCode and kUnknownCode, 0 for kHiddenCode and
/// kZeroCode.
double decode_weight(Code code);
/// Returns the code of the maximum of two cells: NaN prevails, and hidden cells do not count, nor
/// unknown ones beside a known one.
constexpr Code larger_code(Code a, Code b) {
  if (a == kNanCode || b == kNanCode) return kNanCode;
  const Code smaller = a < b ? a : b, larger = a < b ? b : a;
  return larger == kUnknownCode && smaller != kHiddenCode ? smaller : larger;
}

/// The state of the cells of a row block, or of a row of cells.
enum class RowState : std::uint8_t {
  kUnknown = 0,  ///< nothing
  kPreview = 1,  ///< cells of some of their queries
  kFinal = 2,
};

namespace frame_flags {
inline constexpr std::uint8_t kHasHidden = 1;  ///< a cell has no visible pair
inline constexpr std::uint8_t kAllHidden = 2;  ///< no cell has a visible pair
inline constexpr std::uint8_t kHasNan = 4;
inline constexpr std::uint8_t kPreview = 8;  ///< a row is not final
}  // namespace frame_flags

/// The description of a frame's cells, which precedes the codes.
struct FrameHeader {
  Pool reduce = Pool::kMax;  ///< kMean or kMax
  int level = 0;
  std::int64_t x = 0, y = 0;
  std::int64_t columns = 0, rows = 0;  ///< up to 65,535
  std::uint8_t flags = 0;
  float smallest = 0.0f, largest = 0.0f;  ///< of the positive cells; 0 if there are none
};
inline constexpr std::size_t kFrameHeaderBytes = 40;

struct Frame {
  FrameHeader header;
  std::vector<Code> codes;     ///< rows x columns, also if all of them are hidden
  std::vector<RowState> rows;  ///< empty if all are final
};

/// Returns the bytes of a frame with these codes; `rows` as Frame::rows. Flags, smallest and
/// largest are those of the codes; the header's are ignored.
std::string encode_frame(const FrameHeader& header, const std::vector<Code>& codes,
                         const std::vector<RowState>& rows = {});
/// Returns whether the bytes of a frame say that all of its cells are final.
bool frame_is_final(std::string_view frame);
/// Throws InvalidArgument if the bytes are not one whole frame.
Frame decode_frame(std::string_view bytes);

}  // namespace fovea::view
