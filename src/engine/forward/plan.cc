// SPDX-License-Identifier: Apache-2.0
//
// Block and item sizes of the forward pass (plan.h).

#include "engine/forward/plan.h"

#include <algorithm>
#include <cassert>

#include "engine/call/heads_together.h"
#include "engine/call/parallel.h"
#include "engine/call/workspace.h"
#include "engine/decode/decode_plan.h"

namespace fovea::engine {
namespace {

// The packed keys and values of a block take an eighth of a 1 MiB L2 cache, and every panel of an
// item reads them. The queries and contexts of an item are read and written once per block, so they
// may fill most of the remaining L2 cache. Both sizes were measured on Zen 4 (docs/benchmarks.md).
// Smaller blocks rescale more often; with larger blocks, the weights of a panel no longer fit in L1
// and move to L2. With larger items, keys and values are packed less often.
constexpr std::int64_t kBlockBytes = 128 << 10;
constexpr std::int64_t kItemBytes = 800 << 10;
constexpr std::int64_t kLargeItemBytes = 4 << 20;
// Limit for the map cells that the queries of an item accumulate, for maps with many columns.
constexpr std::int64_t kMapBytes = 16 << 20;
constexpr std::int64_t kMinBlockKeys = 64;
constexpr std::int64_t kMaxBlockKeys = 512;
// Tiles have 8 keys or fewer, and biases are loaded for 16 keys at a time.
constexpr std::int64_t kBlockKeysMultiple = 16;
// Several items per thread keep all threads busy until the end, but each item packs its keys and
// values again.
constexpr std::int64_t kItemsPerThread = 4;
// The number for the tile unit. Its products are fast, so packing takes a larger part of the time.
constexpr std::int64_t kLargeItemsPerThread = 2;
constexpr std::int64_t kMinPanels = 2;
// Keys and values of this size are usually in the L2 cache, because they have just been computed or
// are read again. Prefetching them takes up to a seventh of the time of a short call.
constexpr double kNearBytes = 512 << 10;
// Below this many multiply-adds, starting threads costs more than it saves.
constexpr std::int64_t kWorthAThread = 1 << 20;

std::int64_t round_up(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// Returns the index of the first element of part `part`, if `count` elements are divided into
/// `parts` parts whose sizes differ by at most one.
std::int64_t part_begin(std::int64_t part, std::int64_t parts, std::int64_t count) {
  return quotient(part * count, parts);
}

/// Text generation does not use dropout, so decoding has no kernels for it.
bool is_decoded(const Problem& problem, const SequenceSpan& span) {
  return problem.options.dropout.probability == 0 && has_few_queries(problem, span);
}

}  // namespace

Passes Passes::of(const Problem& problem) {
  const ProblemShape& shape = problem.shape;
  Passes passes;
  // All batch items have the same shape.
  const std::int64_t shapes =
      shape.sequences > 0 ? shape.sequences : std::min<std::int64_t>(shape.batch, 1);
  for (std::int64_t s = 0; s < shapes; ++s) {
    const SequenceSpan span = sequence_span(problem.options, shape, s);
    (is_decoded(problem, span) ? passes.decode : passes.tiles) = true;
  }
  // A call without batch items still reports its progress.
  passes.tiles = passes.tiles || !passes.decode;
  return passes;
}

ForwardPlan::ForwardPlan(const Problem& problem, bool decoded, bool context,
                         const kernels::LensSetup& lenses)
    : problem_(problem), decoded_(decoded) {
  const ProblemShape& shape = problem.shape;
  assert(shape.sequences > 0 || shape.batch == 0 ||
         is_decoded(problem, sequence_span(problem.options, shape, 0)) == decoded);
  setup_.options = &problem.options;
  setup_.types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()};
  setup_.q_heads = shape.q_heads;
  setup_.head_dim = problem.head_dim();
  setup_.value_dim = context ? problem.value_dim() : 0;
  setup_.scale = problem.scale;
  setup_.prefetches = keys_and_values_exceed(problem, kNearBytes);
  setup_.lenses = lenses;
  const kernels::ForwardSizes sizes = kernels::forward_sizes(setup_);
  const std::int64_t chunk_panels = std::max(lenses.chunk_panels, sizes.item_panels);
  chunk_rows_ = sizes.panel_lanes * chunk_panels;
  in_place_rows_ = sizes.in_place_lanes * lenses.chunk_panels;
  if (shape.q_heads != shape.kv_heads && !lenses.any()) in_place_vector_ = sizes.in_place_vector;

  if (shape.sequences == 0 && shape.batch > 0) batch_division_ = divide(0);
  std::int64_t all_chunks = 0;
  for_each_division([&](const Division& division, std::int64_t count) {
    setup_.most_keys = std::max(setup_.most_keys, division.kv_len);
    all_chunks += count * division.chunks * division.groups;
  });
  const std::int64_t row_numbers = std::max<std::int64_t>(1, setup_.head_dim + problem.value_dim());
  const auto block_keys = [&](std::int64_t number_bytes) {
    const std::int64_t fit = kBlockBytes / (row_numbers * number_bytes);
    return std::min(
        std::clamp(fit / kBlockKeysMultiple * kBlockKeysMultiple, kMinBlockKeys, kMaxBlockKeys),
        round_up(std::max<std::int64_t>(setup_.most_keys, 1), kBlockKeysMultiple));
  };
  setup_.block_keys = sizes.block_keys > 0 ? sizes.block_keys : block_keys(sizes.number_bytes);
  setup_.usual_block_keys = block_keys(sizeof(float));
  const std::int64_t row_bytes = row_numbers * sizes.number_bytes;

  const double products = static_cast<double>(all_chunks * chunk_rows_) *
                          static_cast<double>(setup_.most_keys) *
                          static_cast<double>(problem.head_dim() + problem.value_dim());
  cut_for_ = products < kWorthAThread ? 1 : thread_count(problem.options.execution, all_chunks);
  // Where many blocks are packed together, panels are not read again for each block.
  const std::int64_t item_bytes = sizes.block_keys > 0 ? kLargeItemBytes : kItemBytes;
  std::int64_t most_chunks = std::max<std::int64_t>(1, item_bytes / (row_bytes * chunk_rows_));
  if (lenses.map) {
    const std::int64_t blocks = setup_.most_keys / setup_.block_keys + 1;
    const std::int64_t query_bytes =
        (lenses.map_columns.cells() + blocks) * static_cast<std::int64_t>(sizeof(float));
    most_chunks = std::clamp<std::int64_t>(kMapBytes / (query_bytes * chunk_rows_), 1, most_chunks);
  }
  chunks_per_item_ =
      cut_for_ == 1
          ? most_chunks
          : std::clamp(all_chunks / (cut_for_ * (sizes.block_keys > 0 ? kLargeItemsPerThread
                                                                      : kItemsPerThread)),
                       std::min(chunk_panels > 1 ? 1 : kMinPanels, most_chunks), most_chunks);
  for_each_division([&](const Division& division, std::int64_t count) {
    const std::int64_t items = items_per_group(division);
    batch_items_per_group_ = items;
    items_ += count * items * division.groups;
    if (items > 0) {
      setup_.most_panels =
          std::max(setup_.most_panels, (division.chunks + items - 1) / items * chunk_panels);
    }
  });
  scratch_bytes_ = kernels::forward_scratch_bytes(setup_);
  threads_ = static_cast<int>(std::clamp<std::int64_t>(items_, 1, cut_for_));
}

ForwardPlan::Division ForwardPlan::divide(std::int64_t sequence) const {
  const ProblemShape& shape = problem_.shape;
  SequenceSpan span = sequence_span(problem_.options, shape, sequence);
  if (shape.sequences > 0 && is_decoded(problem_, span) != decoded_) span.q_len = 0;
  Division division{.q_len = span.q_len, .kv_len = span.kv_len};
  const std::int64_t heads = heads_of_a_key_head(shape);
  if (heads == 0) return division;
  division.parts = heads;
  std::int64_t rows = span.q_len;
  if (in_place_vector_ > 0) {
    division.parts = parts_of_heads(problem_, span, in_place_vector_);
    rows *= (heads + division.parts - 1) / division.parts;
  }
  division.groups = shape.kv_heads * division.parts;
  division.chunks = chunks(rows);
  return division;
}

template <class Visit>
void ForwardPlan::for_each_division(const Visit& visit) const {
  const ProblemShape& shape = problem_.shape;
  if (shape.sequences == 0 && shape.batch > 0) visit(batch_division_, shape.batch);
  for (std::int64_t s = 0; s < shape.sequences; ++s) visit(divide(s), std::int64_t{1});
}

std::int64_t ForwardPlan::chunk_rows(std::int64_t rows) const {
  return rows <= kMaxRowsInPlace ? in_place_rows_ : chunk_rows_;
}

std::int64_t ForwardPlan::items_per_group(const Division& division) const {
  std::int64_t items = (division.chunks + chunks_per_item_ - 1) / chunks_per_item_;
  // Look for an item count that gives every thread the same number of items.
  const std::int64_t all = division.groups * problem_.shape.items();
  const std::int64_t before = items;
  while (items > 1 && items < division.chunks && items < 2 * before && items * all % cut_for_ != 0)
    ++items;
  return items;
}

std::size_t ForwardPlan::list_bytes() const {
  if (problem_.shape.sequences == 0) return 0;
  const auto bytes = static_cast<std::size_t>(problem_.shape.sequences + 1) * sizeof(std::int64_t);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

std::size_t ForwardPlan::workspace_bytes() const {
  return list_bytes() + static_cast<std::size_t>(threads_) * scratch_bytes_;
}

std::byte* ForwardPlan::scratch_of(std::byte* workspace, int thread) const {
  return workspace + list_bytes() + static_cast<std::size_t>(thread) * scratch_bytes_;
}

void ForwardPlan::prepare(std::byte* workspace) const {
  if (problem_.shape.sequences == 0) return;
  auto* const first_item = reinterpret_cast<std::int64_t*>(workspace);
  first_item[0] = 0;
  for (std::int64_t s = 0; s < problem_.shape.sequences; ++s) {
    const Division division = divide(s);
    first_item[s + 1] = first_item[s] + items_per_group(division) * division.groups;
  }
  assert(first_item[problem_.shape.sequences] == items_);
}

WorkItem ForwardPlan::item(const std::byte* workspace, std::int64_t number) const {
  const ProblemShape& shape = problem_.shape;
  WorkItem item;
  Division division = batch_division_;
  std::int64_t per_group = batch_items_per_group_;
  if (shape.sequences > 0) {
    const auto* const first_item = reinterpret_cast<const std::int64_t*>(workspace);
    const auto* const after =
        std::upper_bound(first_item, first_item + shape.sequences + 1, number);
    item.sequence = after - first_item - 1;
    number -= first_item[item.sequence];
    division = divide(item.sequence);
    per_group = items_per_group(division);
  }
  std::int64_t group = quotient(number, per_group);
  const std::int64_t part = (group + 1) * per_group - 1 - number;
  if (shape.sequences == 0) {
    item.sequence = quotient(group, division.groups);
    group -= item.sequence * division.groups;
  }
  const std::int64_t parts = division.parts;
  const std::int64_t heads = heads_of_a_key_head(shape);
  item.kv_head = quotient(group, parts);
  const std::int64_t part_of_heads = group - item.kv_head * parts;
  const std::int64_t first = part_begin(part_of_heads, parts, heads);
  item.head = item.kv_head * heads + first;
  item.heads = part_begin(part_of_heads + 1, parts, heads) - first;
  const std::int64_t rows = division.q_len * item.heads;
  item.in_place = rows <= kMaxRowsInPlace;
  // Every part has as many items as the largest one, so those of smaller parts may be empty.
  const std::int64_t count = chunks(rows), step = chunk_rows(rows);
  item.q_begin = part_begin(part, per_group, count) * step;
  item.q_end = std::min(part_begin(part + 1, per_group, count) * step, rows);
  return item;
}

}  // namespace fovea::engine
