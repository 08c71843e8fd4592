// SPDX-License-Identifier: Apache-2.0
//
// Texts of a map: its title, a description, and the names of queries and keys.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fovea/map.h"
#include "fovea/mask.h"

#include "picture/colors.h"

namespace fovea {

struct MapWords {
  std::string title;
  /// Sentences of the description, without line breaks.
  std::vector<std::string> lines;
  /// Names of all queries and keys of the problem; empty if there are none.
  std::vector<std::string> query_tokens;
  std::vector<std::string> key_tokens;
  /// The names of a row, a column and a number of the map.
  std::string down = "query";
  std::string across = "key";
  std::string value = "weight";
};

/// The subject of a map, for its text.
struct MapSubject {
  std::string name;           ///< "layers.3 of run.safetensors"
  std::string model, source;  ///< of a recording; may be empty
  ProblemShape shape;
  std::int64_t head = 0;    ///< index in the model
  bool some_heads = false;  ///< whether the shape has only some heads of the model
  std::string mask, scores;
  bool values = false;  ///< whether weights are multiplied by the norms of values
};
/// Returns the title and the description of a map, without tokens.
MapWords map_words(const MapSubject& subject, const MapRequest& request, const MapLook& look);

/// Returns "3" or "3 to 7".
inline std::string span_words(IndexRange span) {
  if (span.size() == 1) return fmt::format("{}", span.begin);
  return fmt::format("{} to {}", span.begin, span.end - 1);
}

/// Returns the name at index `number`, or an empty string if there is none.
inline std::string token_of(const std::vector<std::string>& tokens, std::int64_t number) {
  const auto at = static_cast<std::size_t>(number);
  return number >= 0 && at < tokens.size() ? tokens[at] : std::string();
}

}  // namespace fovea
