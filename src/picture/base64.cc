// SPDX-License-Identifier: Apache-2.0
//
// Base64 (base64.h).

#include "picture/base64.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fovea {

std::string base64(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (k < left ? static_cast<std::uint32_t>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= left ? kDigits[(group >> (18 - 6 * k)) & 63U] : '=';
    }
  }
  return text;
}

std::string png_address(const std::string& png) {
  const auto bytes = std::span(reinterpret_cast<const unsigned char*>(png.data()), png.size());
  return "data:image/png;base64," + base64(bytes);
}

}  // namespace fovea
