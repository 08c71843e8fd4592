// SPDX-License-Identifier: Apache-2.0
//
// Lower case as in Python (word_crc.h): one to one by utf8proc, except for the two letters whose
// lower case depends on the context or is longer than one code point.

#include "text/word_crc.h"

#include <string>
#include <vector>

#include <utf8proc.h>
#include <zlib.h>

#include "text/text_width.h"

namespace fovea {
namespace {

constexpr std::string_view kCapitalSigma = "\u03a3";
constexpr std::string_view kDottedCapitalI = "\u0130";

utf8proc_int32_t code_point(std::string_view text) {
  utf8proc_int32_t code = -1;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &code);
  return code;
}

bool has_case(std::string_view letter) {
  switch (utf8proc_category(code_point(letter))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

/// Returns whether a letter's case is looked for beyond this code point, as Unicode's rule for the
/// final sigma does: marks, modifiers and the punctuation within words.
bool is_between_letters(std::string_view mark) {
  switch (utf8proc_category(code_point(mark))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return mark == "'" || mark == "." || mark == ":" || mark == "\u00b7" || mark == "\u2019";
  }
}

/// Returns whether the sigma at `at` ends a word: a letter before it, and none after it.
bool is_final_sigma(const std::vector<std::string_view>& letters, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_between_letters(letters[before - 1])) --before;
  if (before == 0 || !has_case(letters[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < letters.size() && is_between_letters(letters[after])) ++after;
  return after == letters.size() || !has_case(letters[after]);
}

std::string lower_case(std::string_view word) {
  const std::vector<std::string_view> letters = code_points(word);
  std::string result;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == kDottedCapitalI) {
      result += "i\u0307";
    } else if (letters[i] == kCapitalSigma && is_final_sigma(letters, i)) {
      result += "\u03c2";
    } else if (const utf8proc_int32_t code = code_point(letters[i]); code < 0) {
      result += letters[i];  // not UTF-8
    } else {
      utf8proc_uint8_t bytes[4];
      const auto size = utf8proc_encode_char(utf8proc_tolower(code), bytes);
      result.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
    }
  }
  return result;
}

}  // namespace

std::uint32_t word_crc(std::string_view word) {
  const std::string text = lower_case(word);
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

}  // namespace fovea
