// SPDX-License-Identifier: Apache-2.0
//
// The picture of heads (picture.h).

#include "cli/heads/picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include <fmt/format.h>

#include "fovea/info.h"

#include "cli/shell/output.h"
#include "cli/shell/units.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

/// Returns what the page tells about a head.
std::vector<std::string> facts_of(const HeadsSource& source, const HeadOfSource& head) {
  std::string title;
  if (const RecordedAttention* const attention = source.recorded()) {
    title = fmt::format("layer {}, head {}", attention->layer, head.head);
    if (attention->kind != AttentionKind::kSelf) {
      title += fmt::format(", {}", attention_kind_name(attention->kind));
    }
  } else {
    title = fmt::format("head {}", head.head);
  }
  if (source.inputs.shape.batch > 1) title += fmt::format(", batch item {}", head.batch);
  if (!head.name().empty()) title += fmt::format(": {}", head.name());
  std::vector<std::string> facts = {title};
  const auto add = [&](const char* name, double value, int digits) {
    if (!std::isnan(value)) facts.push_back(fmt::format("{} {:.{}f}", name, value, digits));
  };
  add("entropy", head[kEntropy], 3);
  add("distance", head[kMeanDistance], 1);
  add("largest weight", head[kMaximum], 2);
  add("first key", head[kFirstKey], 2);
  add("previous key", head[kPreviousKey], 2);
  add("own key", head[kOwnKey], 2);
  add("induction", head.induction, 2);
  return facts;
}

std::string row_label(const HeadsSource& source, std::int64_t batch, bool kinds) {
  std::string label;
  if (const RecordedAttention* const attention = source.recorded()) {
    label = std::to_string(attention->layer);
    if (kinds) label = fmt::format("{} {}", attention_kind_name(attention->kind), label);
  }
  if (source.inputs.shape.batch > 1) {
    label += fmt::format("{}batch {}", label.empty() ? "" : " ", batch);
  }
  return label;
}

}  // namespace

bool is_picture(const std::string& path) {
  const std::string ending = ending_of(path);
  return ending == ".png" || ending == ".svg" || ending == ".html";
}

HeadGrid head_grid(const std::vector<HeadsSource>& sources, const std::vector<HeadOfSource>& heads,
                   int threads, Progress& progress) {
  HeadGrid grid;
  std::set<std::int64_t> columns;
  std::set<AttentionKind> kinds;
  std::int64_t most_keys = 0, rows = 0;
  for (const HeadOfSource& head : heads) columns.insert(head.head);
  for (const HeadsSource& source : sources) {
    if (source.recorded() != nullptr) kinds.insert(source.recorded()->kind);
    most_keys = std::max(most_keys, source.inputs.shape.kv_len);
    rows += source.inputs.shape.batch;
  }
  for (const std::int64_t column : columns) grid.columns.push_back(std::to_string(column));
  const AttendInputs& first = sources.front().inputs;
  if (first.source) {
    const Recording& recording = first.source->recording;
    grid.title = fmt::format(
        "Heads of {}", visible(recording.model().empty() ? recording.path() : recording.model()));
    if (!recording.source().empty()) grid.lines.push_back(visible(recording.source()));
    grid.lines.push_back(visible(recording.path()));
  } else {
    grid.title = fmt::format("Heads of {}", first.words());
  }
  grid.lines.push_back(fmt::format(
      "{}, {}; rows of each map are queries, columns keys, in a scale of its own",
      counted(first.shape.q_len, "query", "queries"), counted(first.shape.kv_len, "key")));
  const std::int64_t side = grid_side(rows, static_cast<std::int64_t>(columns.size()));
  std::size_t done = 0;
  for (const HeadOfSource& head : heads) {
    const HeadsSource& source = sources[head.source];
    if (head.number == 0) {
      grid.rows.push_back({row_label(source, head.batch, kinds.size() > 1), {}});
    }
    GridHead cell;
    cell.column = std::distance(columns.begin(), columns.find(head.head));
    cell.name = std::string(head.name());
    cell.facts = facts_of(source, head);
    cell.image = head_image(map_of_head(source, head, side, threads));
    grid.rows.back().heads.push_back(std::move(cell));
    progress.show(fmt::format("map {} of {}", ++done, heads.size()));
  }
  progress.clear();
  return grid;
}

std::string draw_heads_as(const std::string& ending, const HeadGrid& grid) {
  if (ending == ".svg") return heads_as_svg(grid);
  if (ending == ".html") return heads_as_html(grid);
  std::vector<ImageText> texts = {{"Title", grid.title},
                                  {"Software", "fovea " + build_info().version}};
  for (const std::string& line : grid.lines) texts.emplace_back("Description", line);
  texts.emplace_back("Comment", "rows are layers, columns heads");
  return heads_as_png(grid, texts);
}

}  // namespace fovea::cli
