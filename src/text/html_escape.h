// SPDX-License-Identifier: Apache-2.0
//
// Escapes text from a scene for a page that is both HTML and XML. Text is displayed, never
// interpreted, and characters that XML does not allow are shown as symbols.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::scene::html {

/// Treatment of line breaks and tabs: kept as layout (notes, JSON), or shown as parts of a word.
enum class Lines : std::uint8_t { kKeep, kShow };

/// Returns `text` with invisible characters replaced: control characters by pictures (U+2400 and
/// up), other code points for which cannot_be_seen() (text_width.h) is true by escapes ("\u202e"),
/// the spaces of an all-space word by an open box, and bytes that are not valid UTF-8 by U+FFFD.
std::string visible(std::string_view text, Lines lines = Lines::kShow);

/// Returns visible(text) with & < > and quotes escaped, for text and attribute values.
FOVEA_API std::string escape(std::string_view text, Lines lines = Lines::kShow);

/// Returns escape(text) inside <bdi>, so that right-to-left text does not reorder its surroundings.
FOVEA_API std::string isolate(std::string_view text);

/// Returns the element id of a step, which needs no escaping: "step-weights-sum" for
/// "weights[sum]".
FOVEA_API std::string step_id(std::string_view name);

/// Returns a shape for display: "6 x 3" with a multiplication sign; "1" for a scalar.
FOVEA_API std::string shape_text(const Shape& shape);

}  // namespace fovea::scene::html
