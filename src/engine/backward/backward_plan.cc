// SPDX-License-Identifier: Apache-2.0
//
// Block and item sizes of the backward pass (backward_plan.h).

#include "engine/backward/backward_plan.h"

#include <algorithm>
#include <cstdint>

#include "engine/backward/backward_problem.h"
#include "engine/call/parallel.h"
#include "kernels/simd/arena.h"
#include "problem/broadcast.h"

namespace fovea::engine {
namespace {

// Every block of keys packs all queries again, and reads and writes their gradients, so blocks
// should be long. Long blocks exceed the L2 cache, but sequential access makes up for this
// (docs/benchmarks.md). A single head must still provide work for several threads.
constexpr std::int64_t kMaxBlockKeys = 512;
constexpr std::int64_t kMinBlockKeys = 128;
constexpr std::int64_t kWantedItems = 8;
// Biases are loaded for 16 keys at a time.
constexpr std::int64_t kBiasKeys = 16;
// Queries per item of the preparation pass, about.
constexpr std::int64_t kRowsTogether = 768;
// If keys and values have at most this size, prefetching the next item takes 3 to 5 % more time
// than it saves. Beyond it, it saves up to 18 %.
constexpr double kNearBytes = 2 << 20;
// Below this many multiply-adds, starting threads costs more than it saves.
constexpr std::int64_t kWorthAThread = 1 << 18;

std::int64_t parts_of(std::int64_t number, std::int64_t size) { return (number + size - 1) / size; }
std::int64_t round_up(std::int64_t number, std::int64_t multiple) {
  return parts_of(number, multiple) * multiple;
}

/// Returns the number of keys per block, a multiple of `multiple`, for `heads` heads of up to
/// `keys` keys. Blocks are short enough to give a sufficient number of items, and the last one is
/// not much shorter than the rest.
std::int64_t block_keys(std::int64_t heads, std::int64_t keys, std::int64_t multiple) {
  const std::int64_t wanted =
      std::clamp(round_up(heads * keys / kWantedItems, multiple), kMinBlockKeys, kMaxBlockKeys);
  const std::int64_t blocks = std::max<std::int64_t>(1, parts_of(keys, wanted));
  return std::max(multiple, round_up(parts_of(keys, blocks), multiple));
}

}  // namespace

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardInputs& inputs,
                           const AttentionGradients& gradients)
    : problem_(problem) {
  const ProblemShape& shape = problem.shape;
  group_ = shape.kv_heads == 0 ? 1 : shape.q_heads / shape.kv_heads;
  std::int64_t most_queries = 0;
  for (std::int64_t s = 0; s < shape.items(); ++s) {
    const SequenceSpan span = sequence_span(problem.options, shape, s);
    most_keys_ = std::max(most_keys_, span.kv_len);
    most_queries = std::max(most_queries, span.q_len);
  }
  const std::int64_t heads = shape.items() * shape.kv_heads;
  kernels::ForwardSetup& forward = setup_.forward;
  forward.options = &problem.options;
  forward.types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()};
  forward.q_heads = shape.q_heads;
  forward.head_dim = problem.head_dim();
  forward.value_dim = problem.value_dim();
  forward.most_keys = most_keys_;
  forward.most_panels = 1;
  forward.scale = problem.scale;
  forward.prefetches = keys_and_values_exceed(problem, kNearBytes);
  setup_.grad_context = inputs.grad_context.dtype();
  setup_.most_queries = most_queries;
  const kernels::BackwardSizes sizes = kernels::backward_sizes(setup_);
  forward.block_keys = block_keys(heads, most_keys_, std::max(kBiasKeys, sizes.keys_multiple));
  setup_.queries_together = sizes.queries;
  row_item_ = std::max<std::int64_t>(kRowsTogether / sizes.queries, 1) * sizes.queries;
  setup_.buckets =
      gradients.grad_relative.defined() ? problem.options.score.relative->table->extent(0) : 0;
  setup_.grad_query = gradients.grad_query.defined();
  setup_.grad_key = gradients.grad_key.defined();
  setup_.grad_value = gradients.grad_value.defined();
  setup_.grad_bias = gradients.grad_bias.defined();
  const BackwardLenses& lenses = lenses_of(gradients);
  setup_.relevance = lenses.relevance.defined() || lenses.magnitude.defined();

  query_sums_ = setup_.grad_query && gradients.grad_query.dtype() != DType::kFloat32;
  sinks_ = gradients.grad_sinks.defined();
  if (setup_.grad_bias) {
    const auto [batch, head, query, key] = broadcast_strides(gradients.grad_bias);
    shared_bias_ = (batch == 0 && shape.batch > 1) || (head == 0 && shape.q_heads > 1) ||
                   (query == 0 && shape.items() > 1) || key == 0;
    const bool in_place = gradients.grad_bias.dtype() == DType::kFloat32;
    bias_size_ = in_place ? 0 : gradients.grad_bias.size();
  }

  blocks_ = parts_of(most_keys_, forward.block_keys);
  items_ = heads * blocks_;
  row_parts_ = parts_of(most_queries, row_item_);
  row_items_ = shape.items() * shape.q_heads * row_parts_;
  scratch_bytes_ = kernels::backward_scratch_bytes(setup_);
  const double products = static_cast<double>(shape.q_heads * shape.q_len) *
                          static_cast<double>(most_keys_ * shape.batch) *
                          static_cast<double>(problem.head_dim() + problem.value_dim());
  threads_ = products < kWorthAThread ? 1 : thread_count(problem.options.execution, items_);
}

KeyItem BackwardPlan::item(std::int64_t number) const {
  const std::int64_t head = number / blocks_;
  return {.sequence = head / problem_.shape.kv_heads,
          .kv_head = head % problem_.shape.kv_heads,
          .first_key = number % blocks_ * setup_.forward.block_keys,
          .chain = head * blocks_};
}

RowItem BackwardPlan::row_item(std::int64_t number) const {
  const std::int64_t head = number / row_parts_;
  RowItem item{.sequence = head / problem_.shape.q_heads, .head = head % problem_.shape.q_heads};
  const std::int64_t q_len = sequence_span(problem_.options, problem_.shape, item.sequence).q_len;
  item.begin = std::min(number % row_parts_ * row_item_, q_len);
  item.end = std::min(item.begin + row_item_, q_len);
  return item;
}

std::int64_t BackwardPlan::rows_before(const SequenceSpan& span, std::int64_t head) const {
  return (span.batch * problem_.shape.q_heads + head) * problem_.shape.q_len + span.query_start;
}

std::int64_t BackwardPlan::bounds_before(const SequenceSpan& span, std::int64_t sequence,
                                         std::int64_t head) const {
  const ProblemShape& shape = problem_.shape;
  const std::int64_t together = setup_.queries_together;
  // A sequence that would start within the last entry of its predecessor starts a new one.
  const std::int64_t per_head = shape.sequences > 0 ? shape.q_len / together + shape.sequences + 1
                                                    : parts_of(shape.q_len, together);
  const std::int64_t before = shape.sequences > 0 ? span.query_start / together + sequence : 0;
  return (span.batch * shape.q_heads + head) * per_head + before;
}

BackwardPlan::Memory BackwardPlan::lay_out(std::byte* base) const {
  const ProblemShape& shape = problem_.shape;
  const std::int64_t rows = shape.batch * shape.q_heads * shape.q_len;
  kernels::Arena arena(base);
  Memory memory;
  memory.progress = arena.take<std::atomic<std::int64_t>>(items_);
  if (shared_bias_) memory.bias_progress = arena.take<std::atomic<std::int64_t>>(items_);
  memory.log2_sum = arena.take<float>(rows);
  memory.delta = arena.take<float>(rows);
  const SequenceSpan after{.batch = shape.batch};
  memory.bounds = arena.take<kernels::KeyBounds>(bounds_before(after, 0, 0));
  if (query_sums_) memory.query_sums = arena.take<float>(rows * problem_.head_dim());
  if (bias_size_ > 0) memory.bias_sums = arena.take<float>(bias_size_);
  memory.bucket_sums = arena.take<float>(items_ * group_ * setup_.buckets);
  if (sinks_) memory.sink_sums = arena.take<double>(row_items_);
  memory.scratch = arena.take<std::byte>(static_cast<std::int64_t>(scratch_bytes_) * threads_);
  memory.bytes = arena.used();
  return memory;
}

}  // namespace fovea::engine
