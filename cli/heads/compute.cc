// SPDX-License-Identifier: Apache-2.0
//
// Head statistics (compute.h).

#include "cli/heads/compute.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fovea/analysis.h"
#include "fovea/error.h"

#include "cli/problem/call.h"
#include "cli/problem/shards.h"
#include "cli/shell/call_progress.h"
#include "cli/shell/job.h"
#include "cli/shell/message.h"
#include "cli/shell/stopwatch.h"
#include "recording/head_statistics.h"

namespace fovea::cli {
namespace {

void add_source(const HeadsSource& source, std::size_t number, std::int64_t blocks,
                const Execution& execution, std::vector<HeadOfSource>& heads) {
  const AttendInputs& inputs = source.inputs;
  AttentionOptions options = source.rules.options();
  options.execution = execution;
  std::vector<HeadTold> told;
  try {
    told = recording::tell_heads(inputs.query.view, blocks, [&](const HeadSummary& summary) {
      heads_in_job(inputs.shape, {inputs.query.view, inputs.key.view}, options, summary);
    });
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  std::optional<TokenScores> scores;
  if (inputs.source && !is_silent()) {
    scores = token_scores(inputs.source->recording, inputs.source->attention, execution);
  }
  for (const HeadTold& one : told) {
    HeadOfSource& head = heads.emplace_back(HeadOfSource{one, number, one.head});
    head.head = inputs.model_head(head.number);
    if (scores) recording::add_token_scores(*scores, head.number, head);
  }
}

}  // namespace

double order_value(const HeadOfSource& head, std::string_view order) {
  constexpr std::pair<std::string_view, HeadPlace> kNumbers[] = {
      {"entropy", kEntropy}, {"distance", kMeanDistance}, {"largest", kMaximum},
      {"first", kFirstKey},  {"prev", kPreviousKey},      {"own", kOwnKey},
      {"next", kNextKey},    {"block", kBlockDiagonal}};
  for (const auto& [name, number] : kNumbers) {
    if (name == order) return head[number];
  }
  if (order == "induction") return head.induction;
  if (order == "duplicate") return head.duplicate;
  return order == "even" ? head.evenness() : head.largest_share();
}

std::vector<std::string> head_orders() {
  return {"share", "entropy", "even",  "distance",  "largest",   "first", "prev",
          "own",   "next",    "block", "induction", "duplicate", "head"};
}

void sort_heads(std::vector<HeadOfSource>& heads, std::string_view order) {
  if (order == "head") return;
  std::stable_sort(heads.begin(), heads.end(), [&](const HeadOfSource& a, const HeadOfSource& b) {
    const double first = order_value(a, order), second = order_value(b, order);
    return std::isnan(second) ? !std::isnan(first) : first > second;
  });
}

HeadsResult compute_heads(const std::vector<HeadsSource>& sources, std::int64_t blocks, int threads,
                          Progress& progress) {
  double flop = 0.0;
  std::vector<double> flops;
  HeadsResult result;
  result.blocks = 0;
  for (const HeadsSource& source : sources) {
    const AttendInputs& inputs = source.inputs;
    const double again = 1.0 + 1.0 / static_cast<double>(blocks);
    flops.push_back(again * useful_flop(inputs.shape, inputs.head_dim(), source.rules.options()));
    flop += flops.back();
    result.blocks = std::max(result.blocks, std::min(blocks, inputs.shape.kv_len));
  }
  CallProgress said(progress, flop);
  Execution execution = {.threads = threads};
  result.threads = threads_of(execution) * job_size();
  const Stopwatch watch;
  double before = 0.0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    execution.progress = [&](std::int64_t done, std::int64_t total) {
      // In parts of a million, because sources differ in size.
      constexpr double kParts = 1e6;
      const double share = static_cast<double>(done) / static_cast<double>(total);
      const double all = flop > 0.0 ? (before + share * flops[i]) / flop : 1.0;
      said(static_cast<std::int64_t>(all * kParts), static_cast<std::int64_t>(kParts));
    };
    add_source(sources[i], i, blocks, execution, result.heads);
    before += flops[i];
  }
  result.seconds = watch.seconds();
  progress.clear();
  return result;
}

MapCells map_of_head(const HeadsSource& source, const HeadOfSource& head, std::int64_t side,
                     int threads) {
  const ProblemShape& shape = source.inputs.shape;
  AttentionOptions options = source.rules.options();
  options.execution.threads = threads;
  return map_in_job(shape, source.inputs.for_map(shape.kv_len),
                    {.batch = head.batch,
                     .head = head.number,
                     .queries = {0, shape.q_len},
                     .keys = {0, shape.kv_len},
                     .rows = std::min(side, shape.q_len),
                     .columns = std::min(side, shape.kv_len)},
                    options)
      .map;
}

}  // namespace fovea::cli
