// SPDX-License-Identifier: Apache-2.0
//
// attention_decode: check, cut the keys into parts, compute these on threads, and merge them.

#include "kernels/decode.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "fovea/attention.h"
#include "fovea/error.h"

#include "core/element_type.h"
#include "engine/lenses.h"
#include "engine/parallel.h"
#include "engine/problem.h"
#include "engine/rows.h"
#include "engine/workspace.h"
#include "kernels/target.h"

namespace fovea {
namespace engine {
namespace {

// Where reading turns from keys to values it has to gather speed anew: chunks of two megabytes of
// keys are 4 % faster than those of half a megabyte. Where more rows share a chunk than go through
// it together, its keys have to stay in a second cache of 1 MiB until the last ones.
constexpr std::int64_t kChunkBytes = 2 << 20;
constexpr std::int64_t kCachedChunkBytes = 512 << 10;
constexpr std::int64_t kLeastChunkKeys = 64;
constexpr std::int64_t kMostChunkKeys = 8192;
// Parts are as long as makes their merging negligible and keeps many threads busy; they follow
// from the shape alone, so that every number of threads merges the same ones.
constexpr std::int64_t kPartBytes = 2 << 20;
// Below this many bytes of keys and values starting a thread costs more than it saves.
constexpr std::int64_t kWorthAThread = 2 << 20;

/// Where the keys and values of one batch item or sequence lie.
class Cache {
 public:
  Cache(const TensorView& key, const TensorView& value) : key_(key), value_(value) {}
  explicit Cache(const PagedKeyValue& paged)
      : key_(paged.key), value_(paged.value), table_(paged.block_table) {}

  kernels::CacheRows key(const SequenceSpan& span, std::int64_t head) const {
    return rows(key_, span, head);
  }
  kernels::CacheRows value(const SequenceSpan& span, std::int64_t head) const {
    return rows(value_, span, head);
  }

 private:
  kernels::CacheRows rows(const TensorView& tensor, const SequenceSpan& span,
                          std::int64_t head) const {
    if (!table_.defined()) {
      return {.rows = rows_of(tensor, span.batch, head, span.key_start)};
    }
    const Strides& strides = tensor.strides();
    return {.rows = rows_of(tensor, 0, head, 0),
            .blocks =
                static_cast<const std::int64_t*>(table_.data()) + span.batch * table_.strides()[0],
            .table_stride = table_.strides()[1],
            .block_size = tensor.extent(2),
            .block_stride = strides[0]};
  }

  const TensorView& key_;
  const TensorView& value_;
  TensorView table_;  // absent: not paged
};

/// How a problem is cut: items are parts of the keys of one head of one sequence.
class DecodePlan {
 public:
  DecodePlan(const Problem& problem, bool context) {
    const ProblemShape& shape = problem.shape;
    setup_.options = &problem.options;
    setup_.types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()};
    setup_.head_dim = problem.head_dim();
    setup_.value_dim = context ? problem.value_dim() : 0;
    setup_.q_heads = shape.q_heads;
    setup_.group = shape.kv_heads > 0 ? shape.q_heads / shape.kv_heads : 0;
    setup_.scale = problem.scale();
    std::int64_t most_keys = 0;
    for (std::int64_t i = 0; i < shape.items(); ++i) {
      const SequenceSpan span = sequence_span(problem.options, shape, i);
      setup_.most_queries = std::max(setup_.most_queries, span.q_len);
      most_keys = std::max(most_keys, span.kv_len);
    }
    const auto key_bytes = std::max<std::int64_t>(
        1, setup_.head_dim * static_cast<std::int64_t>(dtype_size(problem.key.dtype())));
    const std::int64_t chunk_bytes =
        setup_.most_rows() > kernels::kDecodeRowsTogether ? kCachedChunkBytes : kChunkBytes;
    setup_.chunk_keys = std::clamp(chunk_bytes / key_bytes / kLeastChunkKeys * kLeastChunkKeys,
                                   kLeastChunkKeys, kMostChunkKeys);
    keys_per_part_ = setup_.chunk_keys * (kPartBytes / chunk_bytes);
    parts_ = std::max<std::int64_t>(1, (most_keys + keys_per_part_ - 1) / keys_per_part_);
    const std::int64_t heads = shape.items() * shape.kv_heads;
    items_ = setup_.most_rows() == 0 ? 0 : heads * parts_;
    const double bytes = static_cast<double>(heads * most_keys) * static_cast<double>(key_bytes);
    setup_.cached = bytes <= kCachedChunkBytes;
    threads_ = bytes < kWorthAThread ? 1 : thread_count(problem.options.execution, items_);
    scratch_bytes_ = kernels::decode_scratch_bytes(setup_);
    const std::int64_t floats = setup_.most_rows() * (setup_.value_dim + 2);
    part_bytes_ = (static_cast<std::size_t>(floats) * sizeof(float) + kWorkspaceAlignment - 1) /
                  kWorkspaceAlignment * kWorkspaceAlignment;
  }

  const kernels::DecodeSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  std::int64_t parts() const { return parts_; }
  std::int64_t keys_per_part() const { return keys_per_part_; }
  int threads() const { return threads_; }

  std::size_t workspace_bytes() const {
    return static_cast<std::size_t>(items_) * part_bytes_ +
           static_cast<std::size_t>(threads_) * scratch_bytes_;
  }
  kernels::DecodePart part(std::byte* workspace, std::int64_t item) const {
    auto* const maximum =
        reinterpret_cast<float*>(workspace + static_cast<std::size_t>(item) * part_bytes_);
    const std::int64_t rows = setup_.most_rows();
    return {maximum, maximum + rows, maximum + 2 * rows};
  }
  std::byte* scratch(std::byte* workspace, int thread) const {
    return workspace + static_cast<std::size_t>(items_) * part_bytes_ +
           static_cast<std::size_t>(thread) * scratch_bytes_;
  }

 private:
  kernels::DecodeSetup setup_;
  std::int64_t keys_per_part_ = 0;
  std::int64_t parts_ = 1;  // of the longest sequence
  std::int64_t items_ = 0;
  std::size_t scratch_bytes_ = 0, part_bytes_ = 0;
  int threads_ = 1;
};

kernels::DecodeItem kernel_item(const Problem& problem, const Cache& cache, const DecodePlan& plan,
                                std::int64_t number) {
  const ProblemShape& shape = problem.shape;
  const AttentionOptions& options = problem.options;
  const std::int64_t part = number % plan.parts();
  const std::int64_t kv_head = number / plan.parts() % shape.kv_heads;
  const std::int64_t item_number = number / plan.parts() / shape.kv_heads;
  const SequenceSpan span = sequence_span(options, shape, item_number);
  const std::int64_t head = kv_head * plan.setup().group;
  kernels::DecodeItem item;
  item.origin = {.batch = item_number,
                 .head = head,
                 .offset = query_offset(options, shape, item_number),
                 .query_start = span.query_start,
                 .key_start = span.key_start};
  item.q_len = span.q_len;
  item.kv_len = span.kv_len;
  item.query = rows_of(problem.query, span.batch, head, span.query_start);
  item.query_head_stride = problem.query.strides()[1];
  item.key = cache.key(span, kv_head);
  item.value = cache.value(span, kv_head);
  item.key_begin = part * plan.keys_per_part();
  item.key_end = std::min(item.key_begin + plan.keys_per_part(), span.kv_len);
  item.bias = bias_rows(options.score.bias, span, head);
  return item;
}

/// A row's largest score times log2(e). What is lowest times that was the lowest before as well.
double scaled_maximum(const kernels::DecodePart& part, std::int64_t row) {
  const float maximum = part.maximum[row];
  const bool lowest = maximum == std::numeric_limits<float>::lowest();
  return static_cast<double>(maximum) / (lowest ? std::numbers::ln2_v<double> : 1.0);
}

/// Merges the parts of row `row` of a head (Dao et al. 2023, Flash-Decoding), in their order.
void merge_row(const Problem& problem, const AttentionOutputs& outputs, const DecodePlan& plan,
               std::byte* workspace, std::int64_t first_item, std::int64_t row, const Index& at) {
  constexpr double kLn2 = std::numbers::ln2_v<double>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto part = [&](std::int64_t p) { return plan.part(workspace, first_item + p); };
  double maximum = -kInfinity;
  for (std::int64_t p = 0; p < plan.parts(); ++p) {
    // A part without a visible key has no say; one whose sum is nan has.
    if (part(p).sum[row] != 0.0f) maximum = std::max(maximum, scaled_maximum(part(p), row));
  }
  const auto& sinks = problem.options.score.sinks;
  const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<std::size_t>(at[1])] / kLn2;
  maximum = std::max(maximum, sink);
  const bool empty = std::isinf(maximum) && maximum < 0.0;
  const auto factor = [&](std::int64_t p) {
    return std::exp2(scaled_maximum(part(p), row) - maximum);
  };
  double sum = empty ? 0.0 : std::exp2(sink - maximum);
  for (std::int64_t p = 0; p < plan.parts(); ++p) {
    if (part(p).sum[row] != 0.0f) sum += factor(p) * static_cast<double>(part(p).sum[row]);
  }
  if (outputs.lse.defined()) {
    set_value(outputs.lse, at, empty ? -kInfinity : maximum * kLn2 + std::log(sum));
  }
  if (!outputs.context.defined()) return;
  const kernels::OutputRows context = rows_of(outputs.context, at[0], at[1], at[2]);
  const std::int64_t dim = plan.setup().value_dim;
  // Some columns at a time, for which a part's factor is computed once.
  constexpr std::int64_t kColumns = 128;
  double sums[kColumns];
  for (std::int64_t first = 0; first < dim; first += kColumns) {
    const std::int64_t columns = std::min(kColumns, dim - first);
    std::fill_n(sums, columns, 0.0);
    for (std::int64_t p = 0; p < plan.parts(); ++p) {
      if (part(p).sum[row] == 0.0f) continue;
      const double weight = factor(p);
      const float* const from = part(p).context + row * dim + first;
      for (std::int64_t c = 0; c < columns; ++c) sums[c] += weight * static_cast<double>(from[c]);
    }
    with_element(context.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const to = static_cast<T*>(context.data) + first;
      for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = static_cast<T>(empty ? 0.0 : sums[c] / sum);
      }
    });
  }
}

void decode(const Problem& problem, const Cache& cache, const AttentionOutputs& outputs) {
  kernels::choose_target();
  const DecodePlan plan(problem, outputs.context.defined());
  const Execution& execution = problem.options.execution;
  const Workspace workspace(execution.workspace, plan.workspace_bytes());
  for_each_item(execution, plan.threads(), plan.items(), [&](std::int64_t number, int thread) {
    kernels::decode_item(plan.setup(), kernel_item(problem, cache, plan, number),
                         plan.part(workspace.data(), number),
                         plan.scratch(workspace.data(), thread), execution.stop);
  });
  const ProblemShape& shape = problem.shape;
  for (std::int64_t i = 0; i < shape.items(); ++i) {
    const SequenceSpan span = sequence_span(problem.options, shape, i);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const std::int64_t kv_head = head / plan.setup().group;
      const std::int64_t first_item = (i * shape.kv_heads + kv_head) * plan.parts();
      for (std::int64_t q = 0; q < span.q_len; ++q) {
        merge_row(problem, outputs, plan, workspace.data(), first_item,
                  head % plan.setup().group * span.q_len + q,
                  {span.batch, head, span.query_start + q});
      }
    }
  }
}

}  // namespace
}  // namespace engine

void attention_decode(const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options, const AttentionOutputs& outputs) {
  // Nobody generates text with dropout: no need for kernels of its own.
  if (query.dtype() == DType::kFloat64 || options.dropout.probability > 0 ||
      engine::asks_for_lenses(outputs)) {
    return attention_forward(query, key, value, options, outputs);
  }
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  engine::validate_outputs(problem, outputs);
  if (!outputs.context.defined() && !outputs.lse.defined()) return;
  engine::decode(problem, engine::Cache(key, value), outputs);
}

std::size_t attention_decode_workspace(const TensorView& query, const TensorView& key,
                                       const TensorView& value, const AttentionOptions& options) {
  if (options.dropout.probability > 0) {
    return attention_forward_workspace(query, key, value, options);
  }
  const engine::Problem problem = engine::make_problem(query, key, value, options);
  if (problem.is_float64()) return 0;
  kernels::choose_target();
  return engine::Workspace::bytes_with_alignment(
      engine::DecodePlan(problem, true).workspace_bytes());
}

void attention_decode(const TensorView& query, const PagedKeyValue& cache,
                      const AttentionOptions& options, const AttentionOutputs& outputs) {
  validate(cache);
  validate_input(query, "query");
  if (query.dtype() == DType::kFloat64 || cache.key.dtype() == DType::kFloat64 ||
      cache.value.dtype() == DType::kFloat64) {
    throw InvalidArgument(fmt::format(
        "dtype: expected float32, float16 or bfloat16 with keys in blocks, got {}, {} and {}",
        dtype_name(query.dtype()), dtype_name(cache.key.dtype()), dtype_name(cache.value.dtype())));
  }
  if (cache.lengths.extent(0) != query.extent(0)) {
    throw InvalidArgument(fmt::format("lengths: expected one per batch item ({}), got {}",
                                      query.extent(0), cache.lengths.extent(0)));
  }
  if (options.sequences.count() > 0) {
    throw InvalidArgument(
        fmt::format("sequences: expected none with keys in blocks, which have lengths, got {}",
                    options.sequences.count()));
  }
  if (options.dropout.probability > 0) {
    throw InvalidArgument(fmt::format("dropout: expected none with keys in blocks, got {}",
                                      options.dropout.probability));
  }
  if (engine::asks_for_lenses(outputs)) {
    throw InvalidArgument("lenses: expected none with keys in blocks");
  }
  std::vector<std::int64_t> lengths;
  for (std::int64_t item = 0; item < query.extent(0); ++item) {
    lengths.push_back(cache.lengths.at<std::int64_t>({item}));
  }
  const std::int64_t kv_len = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
  AttentionOptions with_lengths = options;
  with_lengths.mask = options.mask & key_lengths(lengths);
  // The checks are those of tensors as long as the longest item, all of whose tokens are in one
  // place; where they really are has been checked.
  const auto as_long = [&](const TensorView& pool) {
    return TensorView(pool.data(), pool.dtype(),
                      {query.extent(0), pool.extent(1), kv_len, pool.extent(3)},
                      {0, pool.strides()[1], 0, 1});
  };
  const TensorView key = as_long(cache.key);
  const TensorView value = as_long(cache.value);
  const engine::Problem checked = engine::make_problem(query, key, value, with_lengths);
  const engine::Problem problem{query, cache.key, cache.value, with_lengths, checked.shape};
  engine::validate_outputs(problem, outputs);
  if (!outputs.context.defined() && !outputs.lse.defined()) return;
  engine::decode(problem, engine::Cache(cache), outputs);
}

}  // namespace fovea
