// SPDX-License-Identifier: Apache-2.0
//
// What the files of this layer share about scenes.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/scene.h"

namespace fovea::scene {

/// The one place of a word. Throws InvalidArgument for a word that is not there (listing the words)
/// or that occurs twice.
Focus find_word(const Scene& scene, std::string_view word);

/// The query that a word names, or "@INDEX", or "@ITEM:INDEX" in a batch. Throws as find_word.
Focus find_query(const Scene& scene, std::string_view name);

/// The key of a batch item that a word or "@INDEX" names, alike.
std::int64_t find_key(const Scene& scene, std::int64_t item, std::string_view name);

/// A focus token's text.
const std::string& focus_word(const Scene& scene);

}  // namespace fovea::scene
