// SPDX-License-Identifier: Apache-2.0
//
// JSON string literals, for output too small to need the JSON library.

#pragma once

#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// Returns `text` (UTF-8) in quotes. Escapes only what JSON does not allow in a string.
std::string json_string(std::string_view text);

/// Same as json_string(), but also writes \uXXXX for every code point for which cannot_be_seen()
/// (text_width.h) returns true. A terminal then displays the code point instead of interpreting it.
/// A byte that is not valid UTF-8 becomes the code point of the same value.
FOVEA_API std::string harmless_json_string(std::string_view text);

/// Returns scene::html::visible(text) (text/html_escape.h) in quotes, safe inside a <script>:
/// without raw & < > and without U+2028.
FOVEA_API std::string script_json_string(std::string_view text);

}  // namespace fovea
