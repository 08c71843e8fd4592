// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a trace for the page's script, as JSON that is safe inside a <script> element.

#pragma once

#include <cstddef>
#include <string>

#include "scene/texts/texts.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// Maximum size of a scene file that is included in the page.
inline constexpr std::size_t kLongestScene = 64 << 10;

/// Returns whether the reader can change the numbers of the scene: a small dot-product scene whose
/// JSON is on the page.
bool is_editable(const TraceModel& model);

/// Returns the data of a trace as JSON. Small traces keep every digit, larger ones use float32 in
/// base64, and the largest use two bytes or one byte per number. Steps that still do not fit are
/// omitted, and the page shows them without numbers.
///
/// {"precision", "tokens": [[...]], "source": [[...]] or null, "focus": [item, index] or null,
///  "heads", "kvHeads", "editable", "limits": {...}, "score": {...}, "mask": base64 bits or null,
///  "questions": [{"step", "place": [item, head, plane, row, col], "tolerance": {...}}],
///  "steps": [{"name", "title", "shape", "dims": [batch, heads, planes, rows, cols], "rows": "q",
///             "cols": "k", "decimals", "sci", "largest", "maskable", and one of "v" (numbers),
///             "f32", "u16", "u8"; "u16" and "u8" also have "low" and "high"}]}
std::string page_data(const TraceModel& model, const Texts& texts);

/// Returns a sentence about the precision of the numbers in the page's script; "" if they are
/// exact.
std::string data_note(const TraceModel& model, const Texts& texts);

}  // namespace fovea::scene::html
