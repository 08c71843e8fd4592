// SPDX-License-Identifier: Apache-2.0
//
// Literal search in the text that tokens make together.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::view {

struct FindOptions {
  bool fold = false;        ///< whether ASCII letters match in either case
  std::int64_t after = -1;  ///< only positions after this one are returned
  std::size_t most = 1000;  ///< positions to return
};

struct Found {
  std::int64_t count = 0;                    ///< tokens in which a match begins
  std::vector<std::int64_t> positions = {};  ///< the first of them, ascending
};

/// Finds the tokens in which an occurrence of `text`, which must not be empty, begins. Occurrences
/// may go across tokens and overlap. Cost: proportional to the length of the text and the tokens.
Found find_in_tokens(const std::vector<std::string>& tokens, std::string_view text,
                     const FindOptions& options);

}  // namespace fovea::view
