// SPDX-License-Identifier: Apache-2.0
//
// Comparison of two recordings (compare.h).

#include "cli/diff/compare.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fovea/analysis.h"
#include "fovea/error.h"

#include "cli/problem/call.h"
#include "cli/problem/recorded.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/stopwatch.h"
#include "core/fail.h"

namespace fovea::cli {
namespace {

void add_differences(const Comparison& comparison, std::size_t number,
                     const AttentionDivergence& found, std::vector<HeadDifference>& heads) {
  const RecordedAttention& attention = comparison.attentions[number];
  const ProblemShape shape = attention.shape();
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const TokenList* const tokens = comparison.first.query_tokens(attention, batch);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      HeadDifference difference = {.attention = number,
                                   .batch = batch,
                                   .head = attention.model_head(head),
                                   .mean = found.mean.value({batch, head}),
                                   .largest = found.largest.value({batch, head}),
                                   .query = found.largest_query.at<std::int64_t>({batch, head}),
                                   .token = {}};
      if (tokens != nullptr && difference.query >= 0) {
        difference.token = tokens->texts[static_cast<std::size_t>(difference.query)];
      }
      heads.push_back(std::move(difference));
    }
  }
}

}  // namespace

Comparison compare(const Recording& first, const Recording& second,
                   const RecordedArguments& selection, int threads, Progress& progress) {
  Comparison result = {.first = first,
                       .second = second,
                       .attentions = select_recorded(first, selection),
                       .heads = {},
                       .left_out = {}};
  std::vector<const RecordedAttention*> others;
  double flop = 0.0;
  for (const RecordedAttention& attention : result.attentions) {
    others.push_back(&find_counterpart(attention, first, second));
    flop += 2.0 * useful_flop(attention.shape(), attention.query->extent(3), attention.options);
  }
  for (const RecordedAttention& other : select_recorded(second, selection)) {
    if (std::ranges::find(others, other.name, &RecordedAttention::name) == others.end()) {
      result.left_out.push_back(other.name);
    }
  }
  Execution execution = {.threads = threads};
  result.threads = threads_of(execution);
  CallProgress said(progress, flop);
  const Stopwatch watch;
  const auto count = static_cast<std::int64_t>(others.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    execution.progress = [&](std::int64_t done, std::int64_t total) {
      said(static_cast<std::int64_t>(i) * total + done, count * total);
    };
    try {
      add_differences(result, i, attention_divergence(result.attentions[i], *others[i], execution),
                      result.heads);
    } catch (const InvalidArgument& error) {
      // Shapes that differ, which tokens would have shown if there were any.
      fail("{}: {}: {}", second.path(), result.attentions[i].name, error.what());
    }
  }
  result.seconds = watch.seconds();
  progress.clear();
  return result;
}

MapCells difference_map(const Comparison& comparison, std::vector<std::string>& row_labels,
                        std::vector<std::string>& column_labels) {
  std::set<std::int64_t> heads;
  std::vector<std::pair<std::size_t, std::int64_t>> rows;  // attention and batch item
  for (const HeadDifference& head : comparison.heads) {
    heads.insert(head.head);
    const std::pair row(head.attention, head.batch);
    if (rows.empty() || rows.back() != row) rows.push_back(row);
  }
  for (const auto& [number, batch] : rows) {
    const RecordedAttention& attention = comparison.attentions[number];
    std::string label = std::to_string(attention.layer);
    if (attention.kind != AttentionKind::kSelf) {
      label = fmt::format("{} {}", attention_kind_name(attention.kind), label);
    }
    if (attention.shape().batch > 1) label += fmt::format(", {}", batch);
    row_labels.push_back(std::move(label));
  }
  for (const std::int64_t head : heads) column_labels.push_back(std::to_string(head));
  const auto height = static_cast<std::int64_t>(rows.size());
  const auto width = static_cast<std::int64_t>(heads.size());
  MapCells map = {.queries = {0, height},
                  .keys = {0, width},
                  .pool = Pool::kMean,
                  .cells = Tensor(DType::kFloat32, {height, width}),
                  .pairs = Tensor(DType::kInt64, {height, width})};
  std::int64_t row = -1;
  std::pair<std::size_t, std::int64_t> last;
  for (const HeadDifference& head : comparison.heads) {
    const std::pair of_head(head.attention, head.batch);
    if (row < 0 || of_head != last) ++row;
    last = of_head;
    const std::int64_t column = std::distance(heads.begin(), heads.find(head.head));
    map.cells.at<float>({row, column}) = static_cast<float>(head.mean);
    map.pairs.at<std::int64_t>({row, column}) = head.query >= 0 || std::isnan(head.mean) ? 1 : 0;
  }
  return map;
}

}  // namespace fovea::cli
