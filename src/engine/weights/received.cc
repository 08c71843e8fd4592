// SPDX-License-Identifier: Apache-2.0
//
// Attention received by keys (fovea/weights.h). A work item is a block of keys with all queries.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/reference.h"
#include "fovea/weights.h"

#include "core/fail.h"
#include "engine/call/contiguous.h"
#include "engine/call/outputs.h"
#include "engine/weights/weights_call.h"
#include "problem/visible_pairs.h"

namespace fovea {
namespace engine {

void check_received(const Problem& problem, const ReceivedAttention& received,
                    OutputChecks& checks) {
  const ProblemShape& shape = problem.shape;
  const auto check = [&](const MutableTensorView& output, std::string_view name) {
    checks.add(output, {.name = name,
                        .shape = {shape.batch, shape.q_heads, shape.kv_len},
                        .shape_name = "[batch, q_heads, kv_len]",
                        .type = OutputType::kSums});
  };
  check(received.sum, "sum");
  check(received.largest, "largest");
  check(received.recent, "recent");
  if (received.recent.defined() &&
      (received.recent_queries < 1 || received.recent_queries > shape.q_len)) {
    fail_argument("recent_queries", "expected 1 to q_len = {}, got {}", shape.q_len,
                  received.recent_queries);
  }
  if (!received.histogram.defined()) return;
  const MutableTensorView& histogram = received.histogram;
  if (histogram.rank() != 3 || histogram.extent(2) < 1 || histogram.extent(2) > kMaxWeightBins) {
    fail_argument("histogram", "expected [batch, q_heads, bins] with 1 to {} bins, got {}",
                  kMaxWeightBins, to_string(histogram.shape()));
  }
  checks.add(histogram, {.name = "histogram",
                         .shape = {shape.batch, shape.q_heads, histogram.extent(2)},
                         .shape_name = "[batch, q_heads, bins]",
                         .type = OutputType::kNumbers});
}

namespace {

std::int64_t bins_of(const ReceivedAttention& received) {
  return received.histogram.defined() ? received.histogram.extent(2) : 0;
}

void clear_histogram(const ReceivedAttention& received) {
  if (!received.histogram.defined()) return;
  for_each_index(received.histogram.shape(),
                 [&](const Index& at) { received.histogram.at<std::int64_t>(at) = 0; });
}

void receive(const WeightInputs& inputs, const Problem& problem,
             const ReceivedAttention& received) {
  const WeightsCall call(inputs, problem);
  const ProblemShape& shape = problem.shape;
  const std::int64_t blocks = (shape.kv_len + kWeightBlockKeys - 1) / kWeightBlockKeys;
  const auto bins = static_cast<std::size_t>(bins_of(received));
  std::mutex adding;
  call.run(shape.batch * shape.q_heads * blocks, [&](std::int64_t number, std::byte* scratch) {
    const std::int64_t batch = number / (shape.q_heads * blocks);
    const std::int64_t head = number / blocks % shape.q_heads;
    kernels::WeightsItem item = call.item(batch, head);
    item.k_begin = number % blocks * kWeightBlockKeys;
    item.k_end = std::min(item.k_begin + kWeightBlockKeys, shape.kv_len);
    const auto place = [&](const MutableTensorView& tensor) {
      return tensor.defined() ? &tensor.at<float>({batch, head, item.k_begin}) : nullptr;
    };
    item.sums = place(received.sum);
    item.maxima = place(received.largest);
    item.recent = place(received.recent);
    item.recent_begin = shape.q_len - received.recent_queries;
    // If only `recent` is requested, earlier queries are skipped.
    if (item.sums == nullptr && item.maxima == nullptr && bins == 0) {
      item.q_begin = item.recent_begin;
    }
    std::vector<std::int64_t> counts(bins);
    if (bins > 0) item.histogram = counts.data();
    item.bins = static_cast<std::int64_t>(bins);
    call.run_item(item, scratch);
    const std::lock_guard lock(adding);
    for (std::size_t b = 0; b < bins; ++b) {
      received.histogram.at<std::int64_t>({batch, head, static_cast<std::int64_t>(b)}) += counts[b];
    }
  });
}

void receive_float64(const Problem& problem, const ReceivedAttention& received) {
  const Contiguous query(problem.query), key(problem.key);
  const reference::Inputs all{query.view(), key.view(), key.view()};
  const ProblemShape& shape = problem.shape;
  const Execution& execution = problem.options.execution;
  const std::int64_t bins = bins_of(received);
  const std::int64_t items = shape.batch * shape.q_heads;
  const VisiblePairs pairs_seen(problem.options);
  for_each_item(execution, thread_count(execution, items), items, [&](std::int64_t item, int) {
    const std::int64_t batch = item / shape.q_heads;
    const std::int64_t head = item % shape.q_heads;
    for (std::int64_t q = 0; q < shape.q_len; ++q) {
      if (execution.stop.stop_requested()) return;
      const reference::Row row{batch, head, q};
      const reference::Rows found =
          reference::attention_rows(all, problem.options, std::span(&row, 1));
      ScorePosition place = found.places.front();
      for (std::int64_t j = 0; j < shape.kv_len; ++j) {
        const double weight = found.weights.at<double>({0, j});
        const Index at{batch, head, j};
        const auto add = [&](const MutableTensorView& to) {
          if (to.defined()) to.at<double>(at) = (q == 0 ? 0.0 : to.at<double>(at)) + weight;
        };
        add(received.sum);
        if (received.largest.defined()) {
          double& most = received.largest.at<double>(at);
          if (q == 0) most = 0.0;
          if (!(weight <= most) && !std::isnan(most)) most = weight;
        }
        if (received.recent.defined()) {
          double& sum = received.recent.at<double>(at);
          if (q == 0) sum = 0.0;
          if (q >= shape.q_len - received.recent_queries) sum += weight;
        }
        place.key = j;
        if (bins == 0 || std::isnan(weight) || !pairs_seen.visible(place)) continue;
        const double size = weight > 0.0 ? -std::log2(weight) : static_cast<double>(bins);
        const auto bin =
            static_cast<std::int64_t>(std::clamp(size, 0.0, static_cast<double>(bins - 1)));
        ++received.histogram.at<std::int64_t>({batch, head, bin});
      }
    }
  });
}

}  // namespace
}  // namespace engine

void attention_received(const WeightInputs& inputs, const AttentionOptions& options,
                        const ReceivedAttention& received) {
  const engine::Problem problem = engine::weights_problem(inputs, options);
  engine::check_lse(problem, inputs.lse);
  engine::OutputChecks checks(problem);
  engine::check_received(problem, received, checks);
  if (!received.sum.defined() && !received.largest.defined() && !received.recent.defined() &&
      !received.histogram.defined()) {
    return;
  }
  engine::clear_histogram(received);
  if (problem.is_float64()) {
    engine::receive_float64(problem, received);
  } else {
    engine::receive(inputs, problem, received);
  }
}

}  // namespace fovea
