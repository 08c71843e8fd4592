// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a trace for the page's script, as JSON that is safe inside <script>.

#pragma once

#include <string>

#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// Small traces keep every digit; larger ones float32 in base64; the largest two or one byte per
/// number.
/// What does not fit even so is left out, and the page shows it without numbers.
///
/// {"precision", "tokens": [[...]], "source": [[...]] or null, "focus": {item, index} or null,
///  "heads", "kvHeads", "score": {...}, "mask": base64 bits or null,
///  "steps": [{"name", "title", "shape", "dims": [batch, heads, planes, rows, cols], "rows": "q",
///             "cols": "k", "decimals", "largest", and one of "v" (numbers), "f32", "u16", "u8"}]}
std::string page_data(const TraceModel& model);

/// "", or a sentence on how exact the numbers are that the page's script shows.
std::string data_note(const TraceModel& model);

}  // namespace fovea::scene::html
