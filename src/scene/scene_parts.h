// SPDX-License-Identifier: Apache-2.0
//
// What the files of this layer share about scenes.

#pragma once

#include <string_view>

#include "fovea/scene.h"

namespace fovea::scene {

/// The one place of a word. Throws InvalidArgument for a word that is not there (listing the words)
/// or that occurs twice.
Focus find_word(const Scene& scene, std::string_view word);

/// A focus token's text.
const std::string& focus_word(const Scene& scene);

}  // namespace fovea::scene
