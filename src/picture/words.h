// SPDX-License-Identifier: Apache-2.0
//
// What a map shows, in words: its title, the rules behind it, and the names of queries and keys.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fovea/map.h"

namespace fovea {

struct MapWords {
  std::string title;
  /// Sentences that say the rest; none has a line break.
  std::vector<std::string> lines;
  /// One for each query, or key, of the whole problem; empty where they have no names.
  std::vector<std::string> query_tokens;
  std::vector<std::string> key_tokens;
};

/// "3", or "3 to 7".
inline std::string span_words(IndexRange span) {
  if (span.size() == 1) return fmt::format("{}", span.begin);
  return fmt::format("{} to {}", span.begin, span.end - 1);
}

/// The name of one of them, which may be absent.
inline std::string token_of(const std::vector<std::string>& tokens, std::int64_t number) {
  const auto at = static_cast<std::size_t>(number);
  return number >= 0 && at < tokens.size() ? tokens[at] : std::string();
}

}  // namespace fovea
