// SPDX-License-Identifier: Apache-2.0
//
// Text from a scene made safe for a page that is HTML and XML at once: what a file says is shown,
// never interpreted, and what XML cannot hold is shown as a symbol.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/export.h"
#include "fovea/tensor.h"

namespace fovea::scene::html {

/// Whether line breaks and tabs are layout (notes, JSON) or part of a word that must be seen.
enum class Lines : std::uint8_t { kKeep, kShow };

/// The text with everything invisible made visible: control characters as pictures (U+2400 and
/// on), what else cannot_be_seen() (text_width.h) as "\u202e", spaces of a word
/// that has nothing else as an open box; bytes that are not UTF-8 as U+FFFD.
std::string visible(std::string_view text, Lines lines = Lines::kShow);

/// visible(), with & < > and quotes escaped: for text and for attribute values.
FOVEA_API std::string escape(std::string_view text, Lines lines = Lines::kShow);

/// escape() inside <bdi>, so that right-to-left text stays in its place.
FOVEA_API std::string isolate(std::string_view text);

/// "step-weights-sum" for "weights[sum]": an id that needs no escaping anywhere.
FOVEA_API std::string step_id(std::string_view name);

/// "6 x 3" for people, with a multiplication sign; "1" for a scalar.
FOVEA_API std::string shape_text(const Shape& shape);

}  // namespace fovea::scene::html
