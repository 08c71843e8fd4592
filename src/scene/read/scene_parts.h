// SPDX-License-Identifier: Apache-2.0
//
// Lookup of words in a scene, and the widths of its queries, keys and values.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/scene.h"

namespace fovea::scene {

/// Returns the position of a word. Throws InvalidArgument if the word does not occur (the message
/// lists all words) or occurs more than once.
Focus find_word(const Scene& scene, std::string_view word);

/// Returns the query named by a word, by "@INDEX", or by "@ITEM:INDEX" in a batch. Throws the
/// errors of find_word().
Focus find_query(const Scene& scene, std::string_view name);

/// Returns the key with this name, a word or "@INDEX", in a batch item. Throws the errors of
/// find_word().
std::int64_t find_key(const Scene& scene, std::int64_t item, std::string_view name);

/// Returns the text of the focus token.
const std::string& focus_word(const Scene& scene);

/// Returns the number of columns of all heads' queries, keys or values.
std::int64_t query_columns(const Scene& scene);
std::int64_t key_columns(const Scene& scene);
std::int64_t value_columns(const Scene& scene);

/// Returns the factor on the scores.
double score_scale(const Scene& scene);

}  // namespace fovea::scene
