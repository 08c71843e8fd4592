// SPDX-License-Identifier: Apache-2.0
//
// Partitioning of decoding into work items. An item is a part of the keys of one kv head, with the
// queries that attend to them. With a paged cache, an item may cover several kv heads.

#pragma once

#include <cstddef>
#include <cstdint>
#include <numbers>

#include "fovea/paged_key_value.h"
#include "fovea/tensor.h"

#include "engine/call/parallel.h"
#include "engine/call/problem.h"
#include "kernels/decode/decode.h"
#include "problem/problem_shape.h"

namespace fovea::engine {

/// The keys and values of a call, as tensors or in the blocks of a paged cache.
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
  bool paged() const { return table_.defined(); }

 private:
  kernels::CacheRows rows(const TensorView& tensor, const SequenceSpan& span,
                          std::int64_t head) const;

  const TensorView& key_;
  const TensorView& value_;
  TensorView table_;  // block table; undefined if not paged
};

/// Returns the lse of a row converted to a base-2 logarithm, as decode_weights_item() expects.
inline float log2_sum(const TensorView& lse, const Index& row) {
  return static_cast<float>(lse.value(row) * std::numbers::log2e_v<double>);
}

/// The sequences or batch items of a call that are decoded: all, or those for which decoding is the
/// faster pass.
enum class Decoded { kAll, kFaster };

/// The rows per key head (queries times the heads of a group) of the sequences in a plan. Sequences
/// with few rows and those with more are divided into chunks of different sizes. A plan for each
/// gives every sequence the bits of a separate call.
enum class RowsOfHead { kAny, kFew, kMore };
inline constexpr RowsOfHead kFewAndMore[] = {RowsOfHead::kFew, RowsOfHead::kMore};

/// Returns whether decoding is the faster pass for a sequence. It is for a few queries (with fewer
/// than 64 keys, for one or two rows per key head, or, where pairs of bfloat16 are multiplied, for
/// a few queries), unless the queries of several heads fill vectors. The result does not depend on
/// threads.
bool has_few_queries(const Problem& problem, const SequenceSpan& span);

/// Returns the span of a sequence, without queries if it is not decoded or has other rows.
SequenceSpan decoded_span(const Problem& problem, std::int64_t sequence, Decoded which,
                          RowsOfHead rows);

/// The size of a decoding call.
struct DecodeSize {
  std::int64_t sequences = 1;     // or batch items
  std::int64_t kv_heads = 0;      // per sequence
  std::int64_t group = 0;         // query heads per kv head
  std::int64_t most_queries = 0;  // maximum over sequences
  std::int64_t most_keys = 0;     // maximum over sequences
  std::int64_t value_dim = 0;     // 0 if values are not read
  bool heads_together = false;    // whether an item may have several kv heads

  /// Returns the size of a call that decodes all queries of some sequences with all keys. Values
  /// are read only if `context` is true.
  static DecodeSize of(const Problem& problem, bool context, Decoded which, RowsOfHead rows);
};

/// Work items of a decoding call, numbered by sequence, then by kv heads, then by part.
class DecodePlan {
 public:
  DecodePlan(const Problem& problem, const DecodeSize& size);

  const kernels::DecodeSetup& setup() const { return setup_; }
  std::int64_t items() const { return items_; }
  std::int64_t parts() const { return parts_; }
  /// Returns the number of items into which the kv heads of one part of a sequence are divided.
  std::int64_t items_of_heads() const { return items_of_heads_; }
  Threads threads() const { return {threads_, short_}; }

  /// Returns the item of part `part` of the keys, with `queries` queries starting at `first_query`.
  /// `head` is the item's first query head. An item covers at most setup().most_heads kv heads.
  kernels::DecodeItem item(const Problem& problem, const Cache& cache, std::int64_t item_number,
                           std::int64_t head, std::int64_t first_query, std::int64_t queries,
                           std::int64_t part) const;

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
  std::int64_t heads_together(std::int64_t items, std::int64_t kv_heads) const;

  kernels::DecodeSetup setup_;
  std::int64_t keys_per_part_ = 0;
  std::int64_t parts_ = 1;  // number of parts of the longest sequence
  std::int64_t items_of_heads_ = 0;
  std::int64_t items_ = 0;
  std::size_t scratch_bytes_ = 0, part_bytes_ = 0;
  int threads_ = 1;
  bool short_ = false;  // less work than waking a thread takes
};

}  // namespace fovea::engine
