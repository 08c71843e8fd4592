// SPDX-License-Identifier: Apache-2.0
//
// Text in terminal columns (text_width.h). All functions are built on two visitors, one over code
// points and one over grapheme clusters. A cluster is as wide as its widest code point.

#include "text/text_width.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <utf8proc.h>

namespace fovea {
namespace {

constexpr utf8proc_int32_t kEmojiPresentation = 0xFE0F;

/// A code point and its bytes; `value` is -1 for a byte that is not valid UTF-8.
struct CodePoint {
  utf8proc_int32_t value;
  std::string_view bytes;
};

CodePoint next_code_point(std::string_view text) {
  utf8proc_int32_t value = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &value);
  if (length <= 0) return {-1, text.substr(0, 1)};
  return {value, text.substr(0, static_cast<std::size_t>(length))};
}

template <class Visitor>
void for_each_code_point(std::string_view text, Visitor&& visit) {
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    visit(point);
    text.remove_prefix(point.bytes.size());
  }
}

/// Calls `visit(cluster, columns)` for every grapheme cluster.
template <class Visitor>
void for_each_cluster(std::string_view text, Visitor&& visit) {
  std::size_t begin = 0;
  std::size_t end = 0;
  int columns = 0;
  utf8proc_int32_t previous = -1;
  utf8proc_int32_t state = 0;
  for_each_code_point(text, [&](const CodePoint& point) {
    const utf8proc_int32_t value = point.value < 0 ? 0xFFFD : point.value;
    if (previous >= 0 && utf8proc_grapheme_break_stateful(previous, value, &state)) {
      visit(text.substr(begin, end - begin), columns);
      begin = end;
      columns = 0;
    }
    columns = std::max(columns, utf8proc_charwidth(value));
    const bool flag = value >= 0x1F1E6 && value <= 0x1F1FF;
    if (value == kEmojiPresentation || flag) columns = 2;
    previous = value;
    end += point.bytes.size();
  });
  if (end > begin) visit(text.substr(begin, end - begin), columns);
}

/// Breaks `word` between clusters, appends the full lines to `lines` and returns the remainder.
std::string cut_word(std::string_view word, int columns, std::vector<std::string>& lines) {
  std::string line;
  int used = 0;
  for_each_cluster(word, [&](std::string_view cluster, int width) {
    if (!line.empty() && used + width > columns) {
      lines.push_back(std::move(line));
      line.clear();
      used = 0;
    }
    line += cluster;
    used += width;
  });
  return line;
}

}  // namespace

bool cannot_be_seen(std::int32_t code_point) {
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    case UTF8PROC_CATEGORY_CF:
      // Joiners are harmless: emoji and some scripts need them. Other format characters (direction
      // overrides, tags, invisible operators) change how the surrounding text is displayed or read.
      return code_point != 0x200C && code_point != 0x200D;
    default:
      break;
  }
  switch (code_point) {
    case 0x034F:  // combining grapheme joiner
    case 0x115F:  // Hangul fillers
    case 0x1160:
    case 0x3164:
    case 0xFFA0:
    case 0x17B4:  // Khmer inherent vowels
    case 0x17B5:
      return true;
    default:  // noncharacters
      return (code_point >= 0xFDD0 && code_point <= 0xFDEF) || (code_point & 0xFFFE) == 0xFFFE;
  }
}

bool is_utf8(std::string_view text) {
  bool valid = true;
  for_each_code_point(text, [&](const CodePoint& point) { valid = valid && point.value >= 0; });
  return valid;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> result;
  for_each_code_point(text, [&](const CodePoint& point) { result.push_back(point.bytes); });
  return result;
}

bool is_unseen(std::string_view text) {
  return !text.empty() && cannot_be_seen(next_code_point(text).value);
}

std::string visible(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_code_point(text, [&](const CodePoint& point) {
    if (point.value < 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(point.bytes[0]));
    } else if (point.value == '\n') {
      result += "\\n";
    } else if (point.value == '\t') {
      result += "\\t";
    } else if (!cannot_be_seen(point.value)) {
      result += point.bytes;
    } else if (point.value < 0x100) {
      result += fmt::format("\\x{:02x}", point.value);
    } else {
      result += fmt::format("\\u{:04x}", point.value);
    }
  });
  return result;
}

int display_width(std::string_view text) {
  int width = 0;
  for_each_cluster(text, [&](std::string_view, int columns) { width += columns; });
  return width;
}

std::string fit(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::string result;
  int used = 0;
  bool open = true;
  for_each_cluster(text, [&](std::string_view cluster, int width) {
    open = open && used + width <= columns - 1;
    if (!open) return;
    result += cluster;
    used += width;
  });
  return result + "…";
}

std::string pad_right(std::string_view text, int columns) {
  const int missing = std::max(0, columns - display_width(text));
  return std::string(text) + std::string(static_cast<std::size_t>(missing), ' ');
}

std::string pad_left(std::string_view text, int columns) {
  const int missing = std::max(0, columns - display_width(text));
  return std::string(static_cast<std::size_t>(missing), ' ') + std::string(text);
}

std::vector<std::string> wrap(std::string_view text, int columns) {
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& word : split_words(text)) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > columns) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += display_width(word) > columns ? cut_word(word, columns, lines) : word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for_each_code_point(text, [&](const CodePoint& point) {
    const auto category = utf8proc_category(std::max(point.value, 0));
    const bool control_space = point.value >= '\t' && point.value <= '\r';
    const bool space = point.value >= 0 &&
                       (control_space || point.value == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
                        category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP);
    if (space) {
      flush();
    } else {
      word += point.bytes;
    }
  });
  flush();
  return words;
}

}  // namespace fovea
