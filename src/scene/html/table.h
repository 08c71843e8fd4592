// SPDX-License-Identifier: Apache-2.0
//
// A step's matrices as heat maps: real tables where they fit, pictures drawn by the page's script
// where they do not.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// Beyond this a matrix is a picture, not a table.
inline constexpr std::int64_t kMaxTableRows = 40;
inline constexpr std::int64_t kMaxTableCols = 24;
/// And so is a step whose heads and batch items have more cells than this together.
inline constexpr std::int64_t kMaxTableCells = 6000;
/// A hidden layer is a matrix per query; beyond this many only one query's is on the page.
inline constexpr std::int64_t kMaxPlanes = 12;

bool fits_table(const StepLayout& layout);

/// Every matrix of the step, each in a <figure> labelled with its batch item and head. `row_sums`
/// (nullable) becomes a last column.
std::string heat_maps(const TraceModel& model, const Step& step, const Step* row_sums);

/// One <td> with its background; `largest` is what a full background stands for.
std::string heat_cell(const StepNumbers& numbers, double value);
/// The dot that stands for a masked number.
std::string masked_cell();
/// A row's or column's heading: a word, with its full text where CSS may shorten it.
std::string heading(std::string_view scope, std::string_view word, std::string_view attributes);

}  // namespace fovea::scene::html
