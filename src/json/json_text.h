// SPDX-License-Identifier: Apache-2.0
//
// Strings as JSON has them, for writers of JSON too small for a library.

#pragma once

#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// `text`, which is UTF-8, in quotes; only what JSON does not allow in a string is escaped.
std::string json_string(std::string_view text);

/// The same with all that cannot_be_seen() (text_width.h) as \uXXXX, so that a terminal shows it
/// and obeys nothing; a byte that is not UTF-8 becomes the code point of its number.
FOVEA_API std::string harmless_json_string(std::string_view text);

/// What scene::html::visible() (text/html_escape.h) makes of `text`, in quotes, so that it may
/// stand inside a <script>: no raw & < >, no U+2028.
FOVEA_API std::string script_json_string(std::string_view text);

}  // namespace fovea
