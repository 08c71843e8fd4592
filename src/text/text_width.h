// SPDX-License-Identifier: Apache-2.0
//
// Text for terminals: widths in columns rather than bytes, and no characters that a terminal would
// interpret. Uses utf8proc's grapheme clusters, so that wide characters and emoji align.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/export.h"

namespace fovea {

FOVEA_API bool is_utf8(std::string_view text);

/// Returns the text after a byte order mark, with which some editors begin files in UTF-8.
FOVEA_API std::string_view without_byte_order_mark(std::string_view text);

/// Returns whether a code point is invisible or affects the surrounding text: control characters,
/// line and paragraph separators, format characters (direction overrides, soft hyphens, tags,
/// zero-width spaces), fillers and noncharacters. The joiners that emoji and scripts need are
/// excluded.
bool cannot_be_seen(std::int32_t code_point);

/// Splits `text` into code points. A byte that is not valid UTF-8 is an element of its own.
FOVEA_API std::vector<std::string_view> code_points(std::string_view text);

/// Returns cannot_be_seen() for the first code point of `text`.
FOVEA_API bool is_unseen(std::string_view text);

/// Returns `text` with invisible characters escaped in forms such as \n, \x1b or \u202e: control
/// characters (including line breaks and the start of escape sequences), code points for which
/// cannot_be_seen() is true, and bytes that are not valid UTF-8.
FOVEA_API std::string visible(std::string_view text);

/// Returns the width of visible text in columns.
FOVEA_API int display_width(std::string_view text);

/// Truncates `text` to at most `columns`, with an ellipsis at the cut.
FOVEA_API std::string fit(std::string_view text, int columns);

/// Pads `text` with spaces to `columns`.
FOVEA_API std::string pad_right(std::string_view text, int columns);
FOVEA_API std::string pad_left(std::string_view text, int columns);

/// Wraps `text` at spaces into lines of at most `columns`. Breaks words that are longer than a
/// line.
FOVEA_API std::vector<std::string> wrap(std::string_view text, int columns);

/// Splits `text` at Unicode white space. Returns no empty words.
FOVEA_API std::vector<std::string> split_words(std::string_view text);

}  // namespace fovea
