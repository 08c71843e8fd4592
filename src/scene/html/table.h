// SPDX-License-Identifier: Apache-2.0
//
// Renders the matrices of a step as heat maps: HTML tables if they fit, otherwise pictures that the
// page's script draws.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scene/texts/texts.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene::html {

/// Maximum size of a table; larger matrices become pictures.
inline constexpr std::int64_t kMaxTableRows = 40;
inline constexpr std::int64_t kMaxTableCols = 24;
/// Maximum number of cells of a step in tables, over all heads and batch items.
inline constexpr std::int64_t kMaxTableCells = 6000;
/// Maximum number of matrices of a hidden layer, which has one per query. If there are more
/// queries, the page shows only the matrix of one query.
inline constexpr std::int64_t kMaxPlanes = 12;

bool fits_table(const StepLayout& layout);

/// The matrices of a step that heat_maps() returns, and how.
struct MapOptions {
  std::int64_t item = -1;  ///< only those of this batch item, or of all items if -1
  /// Whether there is no script: large matrices are drawn with fewer cells, each a mean, and only
  /// one matrix of a hidden layer is returned.
  bool still = false;
};

/// Returns the matrices of the step in a <figure> each, labelled with its batch item and head.
/// `row_sums` (nullable) becomes the last column.
std::string heat_maps(const TraceModel& model, const Texts& texts, const Step& step,
                      const Step* row_sums, const MapOptions& options = {});

/// Returns the attributes of an element that belongs to a head. The script shows the elements of
/// the chosen head only.
std::string head_data(std::int64_t head, std::int64_t heads);
/// Returns one <td> with its background. The largest magnitude in `numbers` has full colour.
std::string heat_cell(const StepNumbers& numbers, double value);
/// Returns a cell with kMaskedMark, for a masked number.
std::string masked_cell(const Texts& texts);
/// Returns one line that explains kMaskedMark.
std::string mask_legend(const Texts& texts);
/// Returns the heading of a row or column: a word, with its full text if CSS may truncate it.
std::string heading(std::string_view scope, std::string_view word, std::string_view attributes);

}  // namespace fovea::scene::html
