// SPDX-License-Identifier: Apache-2.0
//
// Two passes (html_escape.h): the first replaces invisible characters by the same rule as in a
// terminal, the second escapes markup. In this order no escape is escaped twice.

#include "text/html_escape.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <utf8proc.h>

#include "text/text_width.h"

namespace fovea::scene::html {
namespace {

constexpr utf8proc_int32_t kDelete = 0x7F;
constexpr utf8proc_int32_t kPictures = 0x2400;
constexpr utf8proc_int32_t kPictureOfDelete = 0x2421;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kOpenBox = "\xE2\x90\xA3";      // U+2423

void append_utf8(std::string& out, utf8proc_int32_t codepoint) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count = utf8proc_encode_char(codepoint, bytes);
  for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back(static_cast<char>(bytes[i]));
}

void append_visible(std::string& out, utf8proc_int32_t c, Lines lines) {
  const bool layout = c == '\n' || c == '\t' || c == '\r';
  if (layout && lines == Lines::kKeep) {
    // HTML and XML treat carriage returns differently, so they are dropped.
    if (c != '\r') out.push_back(static_cast<char>(c));
  } else if (c < 0x20) {
    append_utf8(out, kPictures + c);
  } else if (c == kDelete) {
    append_utf8(out, kPictureOfDelete);
  } else if (cannot_be_seen(c)) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
  } else {
    append_utf8(out, c);
  }
}

}  // namespace

std::string visible(std::string_view text, Lines lines) {
  std::string out;
  const bool blank = std::all_of(text.begin(), text.end(), [](char c) { return c == ' '; });
  if (blank && lines == Lines::kShow) {
    for (std::size_t i = 0; i < text.size(); ++i) out += kOpenBox;
    return out;
  }
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t codepoint = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(at, left, &codepoint);
    const utf8proc_ssize_t step = used > 0 ? used : 1;
    if (used > 0) {
      append_visible(out, codepoint, lines);
    } else {
      out += kReplacement;
    }
    at += step;
    left -= step;
  }
  return out;
}

std::string escape(std::string_view text, Lines lines) {
  std::string out;
  for (const char c : visible(text, lines)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string isolate(std::string_view text) { return "<bdi>" + escape(text) + "</bdi>"; }

std::string step_id(std::string_view name) {
  std::string out = "step-";
  for (const char c : name) {
    if (c == '[' || c == '.') {
      out.push_back('-');
    } else if (c != ']') {
      out.push_back(c);
    }
  }
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out;
  for (const std::int64_t extent : shape) {
    if (!out.empty()) out += " \u00D7 ";
    out += std::to_string(extent);
  }
  return out.empty() ? "1" : out;
}

}  // namespace fovea::scene::html
