// SPDX-License-Identifier: Apache-2.0
//
// The lenses of decoding (decode_lenses.h).

#include "engine/decode/decode_lenses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "engine/call/parallel.h"
#include "engine/call/workspace.h"
#include "engine/lenses/lenses.h"
#include "kernels/lenses/row_lens.h"
#include "reference/lenses.h"

namespace fovea::engine {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Writes the requested lens outputs of one row. `at` is the row's index in the output tensors,
/// `position` its position among the keys of its sequence.
class RowWriter {
 public:
  RowWriter(const Lenses& lenses, const Index& at, std::int64_t position, std::int64_t key_start)
      : lenses_(lenses), at_(at), position_(position), key_start_(key_start) {}

  void write(const kernels::WeightRowLogs& row) const {
    const kernels::RowSums sums = kernels::row_sums(row);
    write_statistics(row, sums);
    write_top(row, sums.nan);
  }

 private:
  void write_statistics(const kernels::WeightRowLogs& row, const kernels::RowSums& sums) const {
    const RowStatistics& to = lenses_.rows;
    const auto write = [&](const MutableTensorView& tensor, double number) {
      if (tensor.defined()) set_value(tensor, at_, sums.nan ? kNan : number);
    };
    const bool none = sums.maximum_key < 0;
    const double off = sums.distances / sums.weights;
    const auto position = static_cast<double>(position_ - sums.maximum_key);
    write(to.entropy, none ? 0.0 : std::max(-std::numbers::ln2_v<double> * sums.logs, 0.0) + 0.0);
    write(to.maximum, none ? 0.0 : std::exp2(static_cast<double>(sums.maximum)));
    write(to.first_key, none ? 0.0 : std::exp2(static_cast<double>(row.log2_weights[0])));
    write(to.mean_distance, none ? kNan : position - off);
    write(to.mean_offset, none ? kNan : off);
    write(to.distance_variance,
          none ? kNan : std::max(sums.squares / sums.weights - off * off, 0.0));
    if (to.maximum_key.defined()) {
      to.maximum_key.at<std::int64_t>(at_) = none ? -1 : key_start_ + sums.maximum_key;
    }
  }

  void write_top(const kernels::WeightRowLogs& row, bool nan) const {
    const TopKeys& to = lenses_.top;
    if (!to.keys.defined() && !to.weights.defined()) return;
    const std::int64_t most = (to.keys.defined() ? to.keys : to.weights).extent(3);
    std::int64_t keys[kMaxTopKeys];
    float logs[kMaxTopKeys];
    const std::int64_t found = nan ? 0 : kernels::row_top(row, most, keys, logs);
    for (std::int64_t n = 0; n < most; ++n) {
      const Index at{at_[0], at_[1], at_[2], n};
      const bool there = n < found;
      if (to.keys.defined()) to.keys.at<std::int64_t>(at) = there ? key_start_ + keys[n] : -1;
      if (!to.weights.defined()) continue;
      set_value(to.weights, at, there ? std::exp2(static_cast<double>(logs[n])) : nan ? kNan : 0.0);
    }
  }

  const Lenses& lenses_;
  const Index at_;
  const std::int64_t position_, key_start_;
};

/// The map of one head. Each row of cells is written once its last query has been added.
class HeadMap {
 public:
  HeadMap(const PooledMap& map, std::int64_t batch, std::int64_t head, const SequenceSpan& span)
      : map_(map), batch_(batch), head_(head) {
    if (!map.cells.defined()) return;
    rows_ = divide_rows(map, span.q_len);
    columns_ = divide_columns(map, span.kv_len);
    row_ = new_row();
  }

  void add(std::int64_t query, const kernels::WeightRowLogs& row) {
    if (!map_.cells.defined()) return;
    std::vector<float> weights(static_cast<std::size_t>(row.count));
    kernels::row_weights(row, weights.data());
    row_.add(std::vector<double>(weights.begin(), weights.end()));
    const std::int64_t number = rows_.of(query);
    if (query + 1 < rows_.begin(number + 1)) return;
    for (std::size_t c = 0; c < row_.cells().size(); ++c) {
      set_value(map_.cells, {batch_, head_, number, static_cast<std::int64_t>(c)}, row_.cells()[c]);
    }
    row_ = new_row();
  }

 private:
  reference::MapRow new_row() const { return {columns_, map_.pool}; }

  const PooledMap& map_;
  std::int64_t batch_, head_;
  CellDivision rows_, columns_;
  reference::MapRow row_;
};

}  // namespace

void watch_decoding(const Problem& problem, const Cache& cache, const TensorView& lse,
                    const Lenses& lenses) {
  const ProblemShape& shape = problem.shape;
  DecodeSize size = DecodeSize::of(problem, false, Decoded::kAll, RowsOfHead::kAny);
  size.most_queries = std::min<std::int64_t>(size.most_queries, 1);
  const DecodePlan plan(problem, size);
  const kernels::LensSetup setup = lens_setup(problem, lenses);
  const std::int64_t group = size.group;
  const std::int64_t stride = (size.most_keys / kernels::kRowLensKeys + 1) * kernels::kRowLensKeys;
  const std::size_t row_bytes = static_cast<std::size_t>(group * stride) * sizeof(float);
  Execution execution = problem.options.execution;
  execution.progress = nullptr;  // already reported by the first pass
  const std::int64_t items = plan.items() / plan.parts();
  // A short call is not a series, although this is its second pass.
  const Threads of_plan = plan.threads();
  const int threads =
      of_plan.for_short_call ? 1 : std::min(of_plan.count, thread_count(execution, items));
  const Workspace workspace({}, plan.workspace_bytes());
  const Workspace rows({}, static_cast<std::size_t>(threads) * row_bytes);
  for_each_item(execution, threads, items, [&](std::int64_t number, int thread) {
    const std::int64_t head = number % shape.kv_heads * group;
    const std::int64_t item_number = number / shape.kv_heads;
    const SequenceSpan span = sequence_span(problem.options, shape, item_number);
    if (span.q_len == 0) return;  // its keys may not fit in a row of weights
    float* const logs =
        reinterpret_cast<float*>(rows.data() + static_cast<std::size_t>(thread) * row_bytes);
    for (std::int64_t g = 0; g < group; ++g) {
      std::fill(logs + g * stride + span.kv_len, logs + (g + 1) * stride,
                -std::numeric_limits<float>::infinity());
    }
    std::vector<float> log2_sums(static_cast<std::size_t>(group));
    std::vector<HeadMap> maps;
    for (std::int64_t g = 0; g < group; ++g) {
      maps.emplace_back(lenses.map, span.batch, head + g, span);
    }
    for (std::int64_t q = 0; q < span.q_len; ++q) {
      for (std::int64_t g = 0; g < group; ++g) {
        log2_sums[static_cast<std::size_t>(g)] =
            log2_sum(lse, {span.batch, head + g, span.query_start + q});
      }
      std::int64_t position = 0;
      for (std::int64_t part = 0; part < plan.parts(); ++part) {
        const kernels::DecodeItem item = plan.item(problem, cache, item_number, head, q, 1, part);
        position = q + item.origin.offset;
        if (item.key_begin >= item.key_end) continue;
        kernels::decode_weights_item(plan.setup(), item,
                                     {.log2_sum = log2_sums.data(),
                                      .weights = logs + item.key_begin,
                                      .stride = stride,
                                      .logarithms = true},
                                     plan.scratch(workspace.data(), thread), execution.stop);
      }
      for (std::int64_t g = 0; g < group; ++g) {
        const kernels::WeightRowLogs row{logs + g * stride, span.kv_len};
        if (setup.statistics || setup.top > 0) {
          RowWriter(lenses, {span.batch, head + g, span.query_start + q}, position, span.key_start)
              .write(row);
        }
        maps[static_cast<std::size_t>(g)].add(q, row);
      }
    }
  });
  finish_maps(problem, lenses.map);
}

}  // namespace fovea::engine
