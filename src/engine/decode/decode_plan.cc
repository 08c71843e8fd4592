// SPDX-License-Identifier: Apache-2.0
//
// Partitioning of decoding into work items (decode_plan.h).

#include "engine/decode/decode_plan.h"

#include <algorithm>

#include "engine/call/heads_together.h"
#include "engine/call/rows.h"
#include "engine/call/workspace.h"
#include "kernels/simd/target.h"

namespace fovea::engine {
namespace {

// Memory throughput drops and has to recover whenever reading switches from keys to values: chunks
// of 2 MB of keys are 4 % faster than chunks of 512 KB. If more rows share a chunk than are
// processed together, its keys must stay in a 1 MiB L2 cache until the last rows have used them.
constexpr std::int64_t kChunkBytes = 2 << 20;
constexpr std::int64_t kCachedChunkBytes = 512 << 10;
constexpr std::int64_t kMinChunkKeys = 64;
constexpr std::int64_t kMaxChunkKeys = 8192;
// Parts depend only on shapes and types, so that the same parts are merged for any number of
// threads. A part is a whole number of chunks.
static_assert(kPartBytes % kChunkBytes == 0 && kPartBytes % kCachedChunkBytes == 0);
// An item has several kv heads if their scores fit into half of a 1 MiB L2 cache and enough items
// remain to keep all threads busy.
constexpr std::int64_t kMaxScoreBytes = 512 << 10;
constexpr std::int64_t kItemsPerThread = 2;
// Below this many bytes of keys and multiply-adds, waking threads costs more than it saves. Such a
// call has one more thread for each such share of them.
constexpr double kBytesWorthWaking = 2 << 20, kProductsWorthWaking = 2 << 20;
constexpr double kShareWorthAThread = 0.25;
// Decoding is the faster pass up to this many queries, from kMinDecodedKeys keys on. Where pairs of
// bfloat16 are multiplied, it is for few keys too, and for more queries the more keys there are,
// until the queries fill a vector. The tile unit has a faster pass for more queries, and rows of
// kLongDim dimensions or more gain most.
constexpr std::int64_t kFewQueries = 8;
// Beside the products of kernels/tile/quads-inl.h, which need vectors of kQuadLanes numbers and
// read float32 keys in place, decoding is faster for fewer queries, and for half as many if its
// registers do not hold two of them: they have room for vector / 2 vectors of each.
constexpr std::int64_t kFewQueriesBesideQuads = 6, kQuadLanes = 8, kManyLanes = 16;
constexpr std::int64_t kAlwaysFewQueries = 3;  // no more than any few_queries()
// Up to kFewQueries queries are decoded if the keys of a head have more than kMaxKeyNumbers
// elements. For float32 keys and vectors of fewer than kManyLanes lanes, tiles are faster, but only
// decoding divides the keys of a head among threads. These are decoded only if there are fewer than
// kHeadsForThreads key heads. The batch size is ignored, so that packed sequences have the same
// bits.
constexpr std::int64_t kMaxKeyNumbers = 512 << 10, kHeadsForThreads = 8;
constexpr std::int64_t kFewQueriesBesidePairs = 15;
constexpr std::int64_t kAlwaysFewBesidePairs = 4, kKeysPerQueryBesidePairs = 16;
static_assert(kAlwaysFewQueries <= kAlwaysFewBesidePairs);
constexpr std::int64_t kFewQueriesBesideTiles = 7, kFewLongQueriesBesideTiles = 5;
constexpr std::int64_t kLongDim = 129;
constexpr std::int64_t kMinDecodedKeys = 64;
// With fewer keys, most of the time is work per head that does not depend on the number of keys.
// Decoding has less of it than tiles, and is faster for up to most_rows() rows per key head.
// Registers hold three rows of queries up to kVectorsOfSomeRows vectors of dimensions, and more
// rows up to kVectorsOfManyRows.
constexpr std::int64_t kVectorsOfSomeRows = 16, kVectorsOfManyRows = 8;
constexpr std::int64_t kKeysOfFourRows = 16;
// The maximum number of decoded queries where tiles compute the query heads of a key head one by
// one, and decoding computes them together.
constexpr std::int64_t kFewQueriesOfLoneHeads = 3;
// The number of keys whose products take about as long as the work per head.
constexpr std::int64_t kKeysOfAHead = 32;

bool is_bfloat16(const Problem& problem) {
  const kernels::StorageTypes types{problem.query.dtype(), problem.key.dtype(),
                                    problem.value.dtype()};
  return types.all(DType::kBFloat16);
}
/// Returns whether pairs of bfloat16 are multiplied.
bool multiplies_pairs(const Problem& problem) {
  return is_bfloat16(problem) && kernels::bf16_dots_active() != kernels::UnitKind::kNone;
}

/// Returns the maximum number of queries that are decoded.
std::int64_t few_queries(const Problem& problem, std::int64_t kv_len) {
  if (is_bfloat16(problem) && kernels::tile_unit_active() != kernels::UnitKind::kNone) {
    return problem.head_dim() < kLongDim ? kFewQueriesBesideTiles : kFewLongQueriesBesideTiles;
  }
  if (multiplies_pairs(problem)) {
    return std::min(kAlwaysFewBesidePairs + kv_len / kKeysPerQueryBesidePairs,
                    kFewQueriesBesidePairs);
  }
  const std::int64_t vector = forward_sizes(problem).in_place_vector;
  const bool in_place = problem.key.dtype() == DType::kFloat32;
  const bool divides_keys =
      kv_len * problem.head_dim() > kMaxKeyNumbers &&
      (vector >= kManyLanes || !in_place || problem.shape.kv_heads < kHeadsForThreads);
  if (vector < kQuadLanes || divides_keys) return kFewQueries;
  const std::int64_t few = in_place ? kFewQueriesBesideQuads : kFewQueries;
  return problem.head_dim() <= vector * vector / 2 ? few : few / 2;
}

/// Returns the maximum number of rows per key head that are decoded on fewer than kMinDecodedKeys
/// keys with vectors of `vector` numbers, without pairs of bfloat16.
std::int64_t most_rows(const Problem& problem, std::int64_t kv_len, std::int64_t vector) {
  if (vector < kQuadLanes) return std::min<std::int64_t>(vector, 2);
  const bool holds_some = problem.head_dim() <= kVectorsOfSomeRows * vector;
  const bool holds_many = problem.head_dim() <= kVectorsOfManyRows * vector;
  if (problem.key.dtype() == DType::kFloat32) {
    const bool four = vector >= kManyLanes && kv_len >= kKeysOfFourRows && holds_many;
    return four ? 4 : holds_some ? 3 : 2;
  }
  // Tiles convert 16-bit keys before the product, decoding converts them within it. The limit grows
  // with the number of keys, as it does for pairs of bfloat16.
  const std::int64_t most = kAlwaysFewBesidePairs + kv_len / kKeysPerQueryBesidePairs;
  if (vector < kManyLanes || holds_many) return most;
  return std::min<std::int64_t>(most, holds_some ? 6 : 3);
}

/// Returns whether all rows of a key head are processed at once.
bool is_one_pass(std::int64_t rows) { return rows <= kernels::kDecodeRowsTogether; }

}  // namespace

kernels::CacheRows Cache::rows(const TensorView& tensor, const SequenceSpan& span,
                               std::int64_t head) const {
  const Strides& strides = tensor.strides();
  if (!table_.defined()) {
    return {.rows = rows_of(tensor, span.batch, head, span.key_start), .head_stride = strides[1]};
  }
  return {
      .rows = rows_of(tensor, 0, head, 0),
      .head_stride = strides[1],
      .blocks = static_cast<const std::int64_t*>(table_.data()) + span.batch * table_.strides()[0],
      .table_stride = table_.strides()[1],
      .block_size = tensor.extent(2),
      .block_stride = strides[0]};
}

bool has_few_queries(const Problem& problem, const SequenceSpan& span) {
  if (span.q_len <= 0 || span.kv_len <= 0 || problem.shape.kv_heads == 0) return false;
  if (span.kv_len < kMinDecodedKeys && !multiplies_pairs(problem)) {
    const std::int64_t group = heads_of_a_key_head(problem.shape);
    const bool alone = group > 1 && !scores_are_plain(problem.options);
    const std::int64_t vector = forward_sizes(problem).in_place_vector;
    if (vector == 0) return false;
    return alone ? span.q_len <= kFewQueriesOfLoneHeads
                 : span.q_len * group <= most_rows(problem, span.kv_len, vector);
  }
  return (span.q_len <= kAlwaysFewQueries || span.q_len <= few_queries(problem, span.kv_len)) &&
         !heads_fill_vectors(problem, span);
}

SequenceSpan decoded_span(const Problem& problem, std::int64_t sequence, Decoded which,
                          RowsOfHead rows) {
  SequenceSpan span = sequence_span(problem.options, problem.shape, sequence);
  const bool are_few = is_one_pass(span.q_len * heads_of_a_key_head(problem.shape));
  const bool other_rows = rows != RowsOfHead::kAny && are_few != (rows == RowsOfHead::kFew);
  const bool slower = which == Decoded::kFaster && !has_few_queries(problem, span);
  if (other_rows || slower) span.q_len = 0;
  return span;
}

DecodeSize DecodeSize::of(const Problem& problem, bool context, Decoded which, RowsOfHead rows) {
  const ProblemShape& shape = problem.shape;
  DecodeSize size;
  size.sequences = shape.items();
  size.kv_heads = shape.kv_heads;
  size.group = shape.kv_heads > 0 ? shape.q_heads / shape.kv_heads : 0;
  size.value_dim = context ? problem.value_dim() : 0;
  for (std::int64_t i = 0; i < shape.items(); ++i) {
    const SequenceSpan span = decoded_span(problem, i, which, rows);
    if (span.q_len == 0) continue;
    size.most_queries = std::max(size.most_queries, span.q_len);
    size.most_keys = std::max(size.most_keys, span.kv_len);
  }
  return size;
}

DecodePlan::DecodePlan(const Problem& problem, const DecodeSize& size) {
  setup_.options = &problem.options;
  setup_.types = {problem.query.dtype(), problem.key.dtype(), problem.value.dtype()};
  setup_.head_dim = problem.head_dim();
  setup_.value_dim = size.value_dim;
  setup_.q_heads = problem.shape.q_heads;
  setup_.group = size.group;
  setup_.most_queries = size.most_queries;
  setup_.scale = problem.scale;
  // Zen 4 was slower with similar prefetching, and nothing but the family of the CPU tells them
  // apart. Intel's CPUs were not measured.
  setup_.four_rows = kernels::is_zen5();
  const auto key_bytes = std::max<std::int64_t>(
      1, setup_.head_dim * static_cast<std::int64_t>(dtype_size(problem.key.dtype())));
  const bool one_pass = is_one_pass(setup_.most_rows_of_head());
  const std::int64_t chunk_bytes = one_pass ? kChunkBytes : kCachedChunkBytes;
  setup_.chunk_keys = std::clamp(chunk_bytes / key_bytes / kMinChunkKeys * kMinChunkKeys,
                                 kMinChunkKeys, kMaxChunkKeys);
  keys_per_part_ = setup_.chunk_keys * (kPartBytes / chunk_bytes);
  parts_ = std::max<std::int64_t>(1, (size.most_keys + keys_per_part_ - 1) / keys_per_part_);
  const auto heads = static_cast<double>(size.sequences * size.kv_heads);
  const double keys = heads * static_cast<double>(std::max(size.most_keys, kKeysOfAHead));
  const double products =
      keys * static_cast<double>(setup_.most_rows_of_head() * (setup_.head_dim + setup_.value_dim));
  const double work = std::max(keys * static_cast<double>(key_bytes) / kBytesWorthWaking,
                               products / kProductsWorthWaking);
  short_ = work < 1.0;
  const auto threads_for = [&](std::int64_t items) {
    if (work < kShareWorthAThread) return 1;
    const int threads = thread_count(problem.options.execution, items);
    return short_ ? std::min(threads, 1 + static_cast<int>(work / kShareWorthAThread)) : threads;
  };
  if (size.heads_together && one_pass) {
    const std::int64_t of_one_head = size.sequences * size.kv_heads * parts_;
    // A short call is usually alone, and then takes longer with more items.
    const int threads = short_ ? 1 : threads_for(of_one_head);
    setup_.most_heads = heads_together(of_one_head / threads, size.kv_heads);
  }
  items_of_heads_ = (size.kv_heads + setup_.most_heads - 1) / setup_.most_heads;
  items_ = setup_.most_rows() == 0 ? 0 : size.sequences * items_of_heads_ * parts_;
  threads_ = threads_for(items_);
  scratch_bytes_ = kernels::decode_scratch_bytes(setup_);
  const std::int64_t floats = setup_.most_rows() * (setup_.value_dim + 2);
  part_bytes_ = (static_cast<std::size_t>(floats) * sizeof(float) + kWorkspaceAlignment - 1) /
                kWorkspaceAlignment * kWorkspaceAlignment;
}

/// Returns the number of kv heads per item, at most `kv_heads`. `items` is the number of items that
/// each thread would get with one head per item. The result may depend on the thread count, because
/// it does not affect rounding.
std::int64_t DecodePlan::heads_together(std::int64_t items, std::int64_t kv_heads) const {
  const std::int64_t score_bytes = std::max<std::int64_t>(1, setup_.most_rows_of_head()) *
                                   setup_.chunk_keys * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(
      1, std::min({kv_heads, kMaxScoreBytes / score_bytes, items / kItemsPerThread}));
}

kernels::DecodeItem DecodePlan::item(const Problem& problem, const Cache& cache,
                                     std::int64_t item_number, std::int64_t head,
                                     std::int64_t first_query, std::int64_t queries,
                                     std::int64_t part) const {
  const ProblemShape& shape = problem.shape;
  const AttentionOptions& options = problem.options;
  const SequenceSpan span = sequence_span(options, shape, item_number);
  const std::int64_t kv_head = head / (shape.q_heads / shape.kv_heads);
  kernels::DecodeItem item;
  item.origin = {.batch = item_number,
                 .head = head,
                 .query = first_query,
                 .offset = query_offset(options, shape, item_number),
                 .query_start = span.query_start,
                 .key_start = span.key_start};
  item.heads = std::min(setup_.most_heads, shape.kv_heads - kv_head);
  item.q_len = queries;
  item.kv_len = span.kv_len;
  item.query = rows_of(problem.query, span.batch, head, span.query_start + first_query);
  item.query_head_stride = problem.query.strides()[1];
  item.key = cache.key(span, kv_head);
  item.value = cache.value(span, kv_head);
  item.key_begin = part * keys_per_part_;
  item.key_end = std::min(item.key_begin + keys_per_part_, span.kv_len);
  // Other packed sequences must not change the choice. The keys of a batch share the cache.
  const std::int64_t sequences = shape.sequences > 0 ? 1 : shape.batch;
  item.cached = static_cast<double>(sequences * shape.kv_heads * setup_.head_dim) *
                    static_cast<double>(span.kv_len) *
                    static_cast<double>(dtype_size(problem.key.dtype())) <=
                kCachedChunkBytes;
  item.bias = bias_rows(options.score.bias, span, head);
  item.bias.offset += first_query * item.bias.query_stride;
  return item;
}

}  // namespace fovea::engine
