// SPDX-License-Identifier: Apache-2.0
//
// Explanation of a trace as a story: sections of tables and pictures, first for one word, then for
// all words. The content is determined here; the text and Markdown renderers only format it.

#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fovea/scene.h"

#include "scene/tell/formula.h"
#include "scene/texts/texts.h"
#include "scene/trace/softmax_table.h"
#include "scene/trace/trace_model.h"

namespace fovea::scene {

/// With more words than this, tables show only the most important rows and columns, and matrices
/// become pictures.
inline constexpr std::int64_t kFewWords = 12;

struct Cell {
  std::string text;
  /// 0 (cold) to 1 (hot); NaN for a cell without a colour.
  double heat = std::numeric_limits<double>::quiet_NaN();
  /// The numbers and signs of a written-out sum, for formats that align them; `text` has them too.
  std::vector<std::string> parts = {};
  /// The begin and end of the bar that `text` draws, as shares of the column's width.
  std::optional<std::pair<double, double>> bar = {};
};

struct Column {
  std::string header;
  bool left = false;  ///< left-aligned; numbers are right-aligned
  int rank = 0;       ///< 0: always shown; others are added in ascending order while they fit
};

struct TableRow {
  std::string label;
  std::vector<Cell> cells;  ///< may have fewer entries than the table has columns
  bool focus = false;
  std::string remark;
};

struct Table {
  std::string caption;
  std::vector<Column> columns;
  std::vector<TableRow> rows;
  bool heat = false;  ///< whether the table is a heat map
};

/// A matrix of weights too large for a table. Masked cells are -inf.
struct Picture {
  std::string caption;
  Tensor weights;                   // [rows, columns] float64
  std::vector<std::string> labels;  // one per row
};

/// The lines of an author's note. Lines may be empty, except the first and the last.
using Note = std::vector<std::string>;

struct Section {
  std::string title;
  std::string formula;
  std::string reading;
  std::vector<std::variant<Table, Picture>> blocks;
  std::vector<std::string> remarks;    ///< derived from the data
  std::vector<Note> notes;             ///< written by the author
  std::vector<Formula> formulas = {};  ///< for formats that typeset them, instead of `formula`
};

struct Story {
  std::string title;
  std::string summary;
  std::vector<Note> notes;
  std::vector<Section> sections;
};

Story tell_story(const Trace& trace);

/// Describes the kind of attention in one line: "6 words, 3 numbers each; dot-product scores, not
/// scaled, no trained weights".
std::string summarize(const Scene& scene, const Texts& texts = english());

/// Maximum number of matrices with remarks, unless a reader chooses one of them.
inline constexpr std::size_t kMaxRemarked = 4;

/// A sentence about the weights of one head and batch item.
struct Remark {
  std::int64_t item = 0;
  std::int64_t head = 0;
  std::string text;  ///< with its place, if there are several
};

/// Describes notable weights: the strongest link, the most even row, rows that can attend only to
/// themselves or to nothing, and NaN or infinite values. Covers the first `most` matrices.
std::vector<Remark> remarks_on_weights(const TraceModel& model, std::size_t most = kMaxRemarked,
                                       const Texts& texts = english());

/// Returns the scale of the scores, with the key of the scene format that adds or removes it.
/// Returns
/// "" if a scale is not usual for the score or is 1 either way.
std::string scale_remark(const TraceModel& model, const Texts& texts = english());

/// Returns the shares of the words and of the sink, or "" without a sink.
std::string sink_remark(const SoftmaxTable& table, const Texts& texts = english());

/// Explains why the naive softmax has no proper weights for the focus word in this head, or returns
/// "".
std::string naive_remark(const TraceModel& model, std::int64_t head,
                         const Texts& texts = english());

/// Returns "head 1", "Sentence 1 of 2, head 1", or "" if there is only one head and batch item.
std::string place_of(const StepLayout& layout, std::int64_t item, std::int64_t head,
                     const Texts& texts = english());

/// Describes how the projections, or the direct inputs, were drawn: "rand, seed 42" if all three
/// were drawn the same way, otherwise one entry per drawn matrix ("W_Q: rand, seed 42; W_V: randn,
/// seed 42"), or "" if none was drawn.
std::string how_drawn(const Scene& scene);

}  // namespace fovea::scene
