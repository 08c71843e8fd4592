// SPDX-License-Identifier: Apache-2.0
//
// The frame format (frame.h).

#include "view/explorer/frame.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/fail.h"

namespace fovea::view {
namespace {

constexpr float kCodesPerOctave = 1023.0f;
constexpr float kOctaves = 64.0f;
constexpr std::string_view kMagic = "FVT1";
constexpr std::uint8_t kLog16 = 1;

// Bytes are written one by one, so that the format does not depend on the machine.
template <class Number>
void put(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    bytes.push_back(static_cast<char>((static_cast<std::uint64_t>(number) >> (8 * i)) & 0xffU));
  }
}

template <class Number>
Number get(std::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return static_cast<Number>(number);
}

}  // namespace

Code encode_weight(float weight) {
  if (std::isnan(weight)) return kNanCode;
  if (weight <= 0.0f) return kZeroCode;
  const float code = 3.0f + std::round(kCodesPerOctave * (kOctaves + std::log2(weight)));
  return static_cast<Code>(
      std::clamp(code, static_cast<float>(kMinCode), static_cast<float>(kMaxCode)));
}

double decode_weight(Code code) {
  if (code == kNanCode || code == kUnknownCode) return std::numeric_limits<double>::quiet_NaN();
  if (code < kMinCode) return 0.0;
  return std::exp2((static_cast<double>(code) - 3.0) / static_cast<double>(kCodesPerOctave) -
                   static_cast<double>(kOctaves));
}

std::string encode_frame(const FrameHeader& header, const std::vector<Code>& codes,
                         const std::vector<RowState>& rows) {
  Code smallest = std::numeric_limits<Code>::max();
  Code largest = 0;
  bool hidden = false, nan = false;
  for (Code code : codes) {
    hidden = hidden || code == kHiddenCode;
    nan = nan || code == kNanCode;
    if (code == kUnknownCode) continue;
    largest = std::max(largest, code);
    if (code >= kMinCode) smallest = std::min(smallest, code);
  }
  const bool all_hidden = largest == kHiddenCode && rows.empty();
  const bool positive = largest >= kMinCode;
  std::uint8_t flags = 0;
  if (hidden) flags |= frame_flags::kHasHidden;
  if (all_hidden) flags |= frame_flags::kAllHidden;
  if (nan) flags |= frame_flags::kHasNan;
  if (!rows.empty()) flags |= frame_flags::kPreview;
  const std::size_t code_bytes = all_hidden ? 0 : 2 * codes.size();
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + code_bytes + rows.size());
  put(bytes, static_cast<std::uint32_t>(kFrameHeaderBytes - 4 + code_bytes + rows.size()));
  bytes += kMagic;
  put(bytes, kLog16);
  put(bytes, static_cast<std::uint8_t>(header.reduce == Pool::kMax ? 1 : 0));
  put(bytes, static_cast<std::uint8_t>(header.level));
  put(bytes, flags);
  put(bytes, static_cast<std::uint32_t>(header.x));
  put(bytes, static_cast<std::uint32_t>(header.y));
  put(bytes, static_cast<std::uint16_t>(header.columns));
  put(bytes, static_cast<std::uint16_t>(header.rows));
  put(bytes, std::uint32_t{0});
  const auto put_value = [&](Code code) {
    const auto value = positive ? static_cast<float>(decode_weight(code)) : 0.0f;
    put(bytes, std::bit_cast<std::uint32_t>(value));
  };
  put_value(smallest);
  put_value(largest);
  put(bytes, std::uint32_t{0});
  if (all_hidden) return bytes;
  if constexpr (std::endian::native == std::endian::little) {
    bytes.append(reinterpret_cast<const char*>(codes.data()), code_bytes);
  } else {
    for (const Code code : codes) put(bytes, code);
  }
  for (const RowState row : rows) put(bytes, static_cast<std::uint8_t>(row));
  return bytes;
}

bool frame_is_final(std::string_view frame) {
  constexpr std::size_t kFlags = 11;
  return frame.size() > kFlags && (get<std::uint8_t>(frame, kFlags) & frame_flags::kPreview) == 0;
}

Frame decode_frame(std::string_view bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    fail_argument("frame", "expected {} bytes or more, got {}", kFrameHeaderBytes, bytes.size());
  }
  if (bytes.substr(4, 4) != kMagic || get<std::uint8_t>(bytes, 8) != kLog16) {
    fail_argument("frame", "expected FVT1 in log16, got other bytes");
  }
  Frame frame;
  FrameHeader& header = frame.header;
  header.reduce = get<std::uint8_t>(bytes, 9) == 1 ? Pool::kMax : Pool::kMean;
  header.level = get<std::uint8_t>(bytes, 10);
  header.flags = get<std::uint8_t>(bytes, 11);
  header.x = get<std::uint32_t>(bytes, 12);
  header.y = get<std::uint32_t>(bytes, 16);
  header.columns = get<std::uint16_t>(bytes, 20);
  header.rows = get<std::uint16_t>(bytes, 22);
  header.smallest = std::bit_cast<float>(get<std::uint32_t>(bytes, 28));
  header.largest = std::bit_cast<float>(get<std::uint32_t>(bytes, 32));
  const auto cells = static_cast<std::size_t>(header.columns * header.rows);
  const bool all_hidden = (header.flags & frame_flags::kAllHidden) != 0;
  const bool preview = (header.flags & frame_flags::kPreview) != 0;
  const std::size_t code_bytes = all_hidden ? 0 : 2 * cells;
  const std::size_t row_bytes = preview ? static_cast<std::size_t>(header.rows) : 0;
  const std::size_t expected = kFrameHeaderBytes + code_bytes + row_bytes;
  if (bytes.size() != expected || get<std::uint32_t>(bytes, 0) != expected - 4) {
    fail_argument("frame", "expected {} bytes for {} x {} cells, got {}", expected, header.columns,
                  header.rows, bytes.size());
  }
  frame.codes.assign(cells, kHiddenCode);
  for (std::size_t i = 0; i < code_bytes / 2; ++i) {
    frame.codes[i] = get<Code>(bytes, kFrameHeaderBytes + 2 * i);
  }
  for (std::size_t i = 0; i < row_bytes; ++i) {
    const auto state = get<std::uint8_t>(bytes, kFrameHeaderBytes + code_bytes + i);
    if (state > static_cast<std::uint8_t>(RowState::kFinal)) {
      fail_argument("frame", "expected row states of 0 to 2, got {}", state);
    }
    frame.rows.push_back(static_cast<RowState>(state));
  }
  return frame;
}

}  // namespace fovea::view
