// SPDX-License-Identifier: Apache-2.0
//
// Fields of CSV files.

#pragma once

#include <string>
#include <string_view>

namespace fovea::cli {

/// Returns text as a field in quotes.
inline std::string csv_text(std::string_view text) {
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + "\"";
}

}  // namespace fovea::cli
