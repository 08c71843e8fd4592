// SPDX-License-Identifier: Apache-2.0
//
// A rectangle of weights as a table (tile_text.h).

#include "cli/map/tile_text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "cli/shell/table.h"
#include "picture/words.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

constexpr int kTokenWidth = 12;
constexpr int kNumberWidth = 7;
constexpr std::int64_t kMaxTileRows = 60;
constexpr std::int64_t kLeftOut = -1;

std::string token_label(const std::vector<std::string>& tokens, std::int64_t number) {
  return fit(visible(token_of(tokens, number)), kTokenWidth);
}

/// Returns the numbers of a range, with kLeftOut for those in the middle if there are more than
/// `most`.
std::vector<std::int64_t> shown_numbers(IndexRange range, std::int64_t most) {
  std::vector<std::int64_t> shown;
  const bool all = range.size() <= most;
  const std::int64_t before = all ? range.size() : (most - 1) - (most - 1) / 2;
  for (std::int64_t i = range.begin; i < range.begin + before; ++i) shown.push_back(i);
  if (all) return shown;
  shown.push_back(kLeftOut);
  for (std::int64_t i = range.end - (most - 1) / 2; i < range.end; ++i) shown.push_back(i);
  return shown;
}

}  // namespace

std::string tile_as_text(const Tensor& tile, const TileAxes& axes, int width) {
  int widest = kNumberWidth;
  for (std::int64_t key = axes.keys.begin; key < axes.keys.end; ++key) {
    widest = std::max(widest, display_width(token_label(axes.key_tokens, key)));
  }
  constexpr int kGapWidth = 2, kRowName = 6 + kGapWidth + kTokenWidth;
  const std::int64_t most = std::max((width - kRowName) / (widest + kGapWidth), 3);
  const std::vector<std::int64_t> keys = shown_numbers(axes.keys, most);
  std::vector<Cells> rows = {{"", ""}, {"", ""}};
  for (const std::int64_t key : keys) {
    rows[0].push_back(key == kLeftOut ? "..." : std::to_string(key));
    rows[1].push_back(key == kLeftOut ? "" : token_label(axes.key_tokens, key));
  }
  for (const std::int64_t query : shown_numbers(axes.queries, kMaxTileRows)) {
    if (query == kLeftOut) {
      rows.push_back({"..."});
      continue;
    }
    Cells row = {std::to_string(query), token_label(axes.query_tokens, query)};
    for (const std::int64_t key : keys) {
      row.push_back(key == kLeftOut ? "..."
                                    : fmt::format("{:.5f}", tile.value({query - axes.queries.begin,
                                                                        key - axes.keys.begin})));
    }
    rows.push_back(std::move(row));
  }
  return text_table(rows, "><>");
}

}  // namespace fovea::cli
