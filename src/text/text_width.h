// SPDX-License-Identifier: Apache-2.0
//
// Text as a terminal shows it: columns rather than bytes, and nothing in it that a terminal would
// obey. Built on utf8proc's grapheme clusters, so that wide characters and emoji align.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/export.h"

namespace fovea {

FOVEA_API bool is_utf8(std::string_view text);

/// Whether a code point shows nothing or acts on what stands around it: control characters, line
/// and paragraph separators, format characters (direction overrides, soft hyphens, tags, zero-width
/// spaces), fillers and noncharacters. The joiners that emoji and scripts need are not among them.
bool cannot_be_seen(std::int32_t code_point);

/// The pieces of `text` that are one code point each (or one byte that is not UTF-8).
FOVEA_API std::vector<std::string_view> code_points(std::string_view text);

/// cannot_be_seen() of the first code point of `text`.
FOVEA_API bool is_unseen(std::string_view text);

/// `text` with everything that would act instead of show made visible: control characters (escape
/// codes, line breaks), all that cannot_be_seen() and bytes that are not UTF-8 become \n, \x1b,
/// \u202e.
FOVEA_API std::string visible(std::string_view text);

/// The columns that visible text takes.
FOVEA_API int display_width(std::string_view text);

/// At most `columns` wide; what is cut is replaced by an ellipsis.
FOVEA_API std::string fit(std::string_view text, int columns);

/// Filled with spaces up to `columns`.
FOVEA_API std::string pad_right(std::string_view text, int columns);
FOVEA_API std::string pad_left(std::string_view text, int columns);

/// Broken at spaces into lines of at most `columns`; longer words are cut.
FOVEA_API std::vector<std::string> wrap(std::string_view text, int columns);

/// Split at Unicode white space; no empty words.
FOVEA_API std::vector<std::string> split_words(std::string_view text);

}  // namespace fovea
