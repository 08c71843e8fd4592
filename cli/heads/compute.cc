// SPDX-License-Identifier: Apache-2.0
//
// Head statistics (compute.h).

#include "cli/heads/compute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "fovea/error.h"

#include "cli/problem/call.h"
#include "cli/shell/call_progress.h"

namespace fovea::cli {
namespace {

/// Returns the value by which `order` sorts a head.
double key_of(const HeadTold& head, std::string_view order) {
  constexpr std::pair<std::string_view, HeadPlace> kNumbers[] = {
      {"entropy", kEntropy}, {"distance", kMeanDistance}, {"largest", kMaximum},
      {"first", kFirstKey},  {"prev", kPreviousKey},      {"own", kOwnKey},
      {"next", kNextKey},    {"block", kBlockDiagonal}};
  for (const auto& [name, number] : kNumbers) {
    if (name == order) return head[number];
  }
  return order == "even" ? head.evenness() : head.largest_share();
}

}  // namespace

std::vector<std::string> head_orders() {
  return {"share", "entropy", "even", "distance", "largest", "first",
          "prev",  "own",     "next", "block",    "head"};
}

void sort_heads(std::vector<HeadTold>& heads, std::string_view order) {
  if (order == "head") return;
  std::stable_sort(heads.begin(), heads.end(), [&](const HeadTold& a, const HeadTold& b) {
    const double first = key_of(a, order), second = key_of(b, order);
    return std::isnan(second) ? !std::isnan(first) : first > second;
  });
}

HeadsResult compute_heads(const AttendInputs& inputs, const AttendRules& rules, std::int64_t blocks,
                          int threads, Progress& progress) {
  AttentionOptions options = rules.options();
  options.execution.threads = threads;
  const double again = 1.0 + 1.0 / static_cast<double>(blocks);
  CallProgress said(progress, again * useful_flop(inputs.shape, inputs.head_dim(), options));
  options.execution.progress = [&](std::int64_t done, std::int64_t total) { said(done, total); };

  const ProblemShape& shape = inputs.shape;
  const DType type = inputs.is_float64() ? DType::kFloat64 : DType::kFloat32;
  std::array<Tensor, kHeadNumbers.size()> found;
  HeadSummary summary{.blocks = blocks};
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = Tensor(type, {shape.batch, shape.q_heads});
    summary.*kHeadNumbers[i].output = found[i];
  }
  HeadsResult result;
  result.blocks = std::min(blocks, shape.kv_len);
  result.threads = threads_of(options.execution);
  const auto start = std::chrono::steady_clock::now();
  try {
    attention_heads({inputs.query.view, inputs.key.view}, options, summary);
  } catch (const InvalidArgument& error) {
    throw in_words_of_options(error);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  progress.clear();
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      HeadTold told{.batch = batch, .head = head};
      for (std::size_t i = 0; i < found.size(); ++i) {
        told.numbers[i] = found[i].value({batch, head}) + 0.0;  // no -0
      }
      result.heads.push_back(told);
    }
  }
  return result;
}

}  // namespace fovea::cli
