// SPDX-License-Identifier: Apache-2.0
//
// Strings as JSON has them, for writers of JSON too small for a library.

#pragma once

#include <string>
#include <string_view>

namespace fovea {

/// `text`, which is UTF-8, in quotes; only what JSON does not allow in a string is escaped.
std::string json_string(std::string_view text);

/// The same with all that cannot_be_seen() (text_width.h) as \uXXXX, so that a terminal shows it
/// and obeys nothing.
std::string harmless_json_string(std::string_view text);

}  // namespace fovea
