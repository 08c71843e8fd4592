// SPDX-License-Identifier: Apache-2.0
//
// Escaping of JSON strings (json_text.h).

#include "json/json_text.h"

#include <cstdint>

#include <fmt/format.h>

#include "text/html_escape.h"
#include "text/text_width.h"

namespace fovea {
namespace {

std::string escaped(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 ? fmt::format("\\u{:04x}", byte) : std::string(1, c);
}

/// Decodes one UTF-8 code point.
std::uint32_t code_point_of(std::string_view bytes) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  if (bytes.size() == 1) return byte(0);
  std::uint32_t value = byte(0) & (0x7fU >> bytes.size());
  for (std::size_t i = 1; i < bytes.size(); ++i) value = value << 6 | (byte(i) & 0x3f);
  return value;
}

std::string as_number(std::uint32_t value) {
  if (value < 0x10000) return fmt::format("\\u{:04x}", value);
  value -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (value >> 10), 0xdc00 + (value & 0x3ff));
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += escaped(c);
  return result + "\"";
}

std::string harmless_json_string(std::string_view text) {
  std::string result = "\"";
  for (const std::string_view point : code_points(text)) {
    if (point.size() == 1 && escaped(point[0]) != point) {
      result += escaped(point[0]);
    } else {
      result += is_unseen(point) ? as_number(code_point_of(point)) : std::string(point);
    }
  }
  return result + "\"";
}

std::string script_json_string(std::string_view text) {
  // visible() leaves no control characters and no U+2028, so few characters need an escape.
  std::string result = "\"";
  for (const char c : scene::html::visible(text)) {
    const bool markup = c == '<' || c == '>' || c == '&';
    result += markup ? as_number(static_cast<std::uint32_t>(c)) : escaped(c);
  }
  return result + "\"";
}

}  // namespace fovea
