// SPDX-License-Identifier: Apache-2.0
//
// A trace told as a story: sections of tables and pictures, first for one word, then for all at
// once. What is said is decided here; the text and Markdown renderers only lay it out.

#pragma once

#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "fovea/scene.h"

#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// With more words than this, tables are cut to what matters and matrices become pictures.
inline constexpr std::int64_t kFewWords = 12;

struct Cell {
  std::string text;
  /// 0 (cold) to 1 (hot); nan for a cell without a colour.
  double heat = std::numeric_limits<double>::quiet_NaN();
};

struct Column {
  std::string header;
  bool left = false;      ///< aligned left; numbers are aligned right
  bool optional = false;  ///< left out where the table is too wide with it
};

struct TableRow {
  std::string label;
  std::vector<Cell> cells;  ///< may be fewer than the columns
  bool focus = false;
  std::string remark;
};

struct Table {
  std::string caption;
  std::vector<Column> columns;
  std::vector<TableRow> rows;
  bool heat = false;  ///< whether its cells make a heat map
};

/// A matrix of weights too large for a table. Masked cells are nan.
struct Picture {
  std::string caption;
  Tensor weights;                   // [rows, columns] float64
  std::vector<std::string> labels;  // one per row
};

/// What an author wrote, line by line; lines may be empty, but neither the first nor the last.
using Note = std::vector<std::string>;

struct Section {
  std::string title;
  std::string formula;
  std::string reading;
  std::vector<std::variant<Table, Picture>> blocks;
  std::vector<std::string> remarks;  ///< what is notable, computed
  std::vector<Note> notes;           ///< the author's
};

struct Story {
  std::string title;
  std::string summary;
  std::vector<Note> notes;
  std::vector<Section> sections;
};

Story tell_story(const Trace& trace);

/// One line on what kind of attention this is: "6 words, 3 numbers each; dot-product scores, not
/// scaled, no trained weights".
std::string summarize(const Scene& scene);

/// What is notable in the weights, in words: the strongest link, the most even row, rows that see
/// only themselves or nothing, and what is not a number; for the first few heads and batch items.
std::vector<std::string> remarks_on_weights(const TraceModel& model);

/// "head 1", "item 0, head 1", or "" where there is only one of each.
std::string place_of(const StepLayout& layout, std::int64_t item, std::int64_t head);

/// How the projections were drawn: "rand, seed 42" where all three were alike; else each that was,
/// "W_Q: rand, seed 42; W_V: randn, seed 42"; "" where all are given.
std::string how_drawn(const Projections& projections);

}  // namespace fovea::scene
